# SPDX-License-Identifier: Apache-2.0
# Autoconf's probes run `rm -f core` to clear a core dump, which fails on our folder `core` and then spoils
# `make distcheck`. This takes those words out of the macros that print them. Included before AC_INIT.
m4_define([sy_keep_core], [m4_ifdef([$1], [m4_define([$1],
  m4_bpatsubst(m4_dquote(m4_defn([$1])), [rm -f core ], [rm -f ]))])])
m4_foreach([sy_macro], [[_AC_COMPILE_IFELSE], [_AC_LINK_IFELSE], [_AC_RUN_IFELSE],
  [_AC_COMPILE_IFELSE_BODY], [_AC_LINK_IFELSE_BODY], [_AC_RUN_IFELSE_BODY],
  [_AC_PREPROC_IFELSE], [_AC_PREPROC_IFELSE_BODY], [_AC_INIT_PREPARE], [_AM_PROG_CC_C_O]],
  [sy_keep_core(m4_defn([sy_macro]))])
