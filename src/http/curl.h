/* libcurl starts once for the whole process. */
#ifndef SH_HTTP_CURL_H
#define SH_HTTP_CURL_H

#include "base/status.h"

/* Any task, any number of times. SH_E_UNSUPPORTED if libcurl does not start. */
sh_status sh_curl_start(void);

#endif
