/* Pictures of samples inside pages: small images as data URIs, so that a report remains one file.
 * api/report.c shows misclassified samples with them. */
#ifndef SH_API_PICTURE_H
#define SH_API_PICTURE_H

#include "data/dataset.h"

/* "data:image/bmp;base64,..." of an image sample of one or three channels, its values stretched
 * from their least to their most; sh_free it. NULL: it is no such sample, or there is no memory. */
char *sh_picture_of_sample(const sh_dataset *dataset, size_t index);

#endif
