/* Which build of the program this is. */
#ifndef SH_BASE_BUILD_H
#define SH_BASE_BUILD_H

enum { SH_BUILD_TEXT = 48 };

/* The build-id that the linker wrote into the program or library that holds this very function, in
 * hexadecimal digits; "" where there is none. Equal sources built alike have equal ids. Returns
 * text_out. */
const char *sh_build_text(char text_out[SH_BUILD_TEXT]);

#endif
