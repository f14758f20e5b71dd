/* The only file that includes these headers for their versions alone; they are asked at run time,
 * since the library that is loaded counts. */
#include "base/versions.h"

#include <jansson.h>
#include <sodium.h>
#include <yaml.h>
#include <zlib.h>

const char *sh_version_yaml(void) { return yaml_get_version_string(); }

const char *sh_version_jansson(void) { return jansson_version_str(); }

const char *sh_version_sodium(void) { return sodium_version_string(); }

const char *sh_version_zlib(void) { return zlibVersion(); }
