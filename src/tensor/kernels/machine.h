/* What the kernels run on: processor, instruction set, libraries and their versions. */
#ifndef SH_TENSOR_KERNELS_MACHINE_H
#define SH_TENSOR_KERNELS_MACHINE_H

enum { SH_MACHINE_TEXT = 512 };

/* One line that changes when measured choices may change. Returns text_out. */
const char *sh_machine_text(char text_out[SH_MACHINE_TEXT]);
/* The processor's name, "unknown" where the system does not say. */
const char *sh_machine_processor(char text_out[SH_MACHINE_TEXT]);
const char *sh_machine_onednn(char text_out[SH_MACHINE_TEXT]);
const char *sh_machine_openblas(char text_out[SH_MACHINE_TEXT]);
/* The run-time whose threads kernels, oneDNN and OpenBLAS share: its file, and what it keeps to. */
const char *sh_machine_openmp(char text_out[SH_MACHINE_TEXT]);

#endif
