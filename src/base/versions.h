/* Versions of the libraries that serve files and settings, as they are loaded, for reports. */
#ifndef SH_BASE_VERSIONS_H
#define SH_BASE_VERSIONS_H

const char *sh_version_yaml(void);
const char *sh_version_jansson(void);
const char *sh_version_sodium(void);
const char *sh_version_zlib(void);

#endif
