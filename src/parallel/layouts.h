/* The layouts that rewrite nets: one file and one row each. X(name) declares sh_layout_kind_name.
 */
#ifndef SH_PARALLEL_LAYOUTS_H
#define SH_PARALLEL_LAYOUTS_H

#include "parallel/layout.h"

#define SH_LAYOUT_LIST(X) X(tensor) X(space)

#define SH_DECLARE_LAYOUT(name) extern const sh_layout_kind sh_layout_kind_##name;
SH_LAYOUT_LIST(SH_DECLARE_LAYOUT)
#undef SH_DECLARE_LAYOUT

#endif
