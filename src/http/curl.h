/* libcurl starts once for the whole process. */
#ifndef SH_HTTP_CURL_H
#define SH_HTTP_CURL_H

#include "base/status.h"

sh_status sh_curl_start(void);

#endif
