/* SPDX-License-Identifier: Apache-2.0 */
/* From a table of terms, their numbers and the structures of their values. Included once a table, by its header, with
 * SYI_TERMS_FILE the table and SYI_TERMS_NAME(name) what its names begin with: enum values are SYI_TERMS_ID(name). No
 * include guard. */
#define SY_TERM_BEGIN(name, inner, help) SYI_TERMS_ID(name),
#define SY_TERM_END(name)
#define SY_ARGUMENT(name, key, type, value, range, help)
enum {
#include SYI_TERMS_FILE
    SYI_TERMS_ID(count)
};
#undef SY_TERM_BEGIN
#undef SY_TERM_END
#undef SY_ARGUMENT

#define SY_TERM_BEGIN(name, inner, help)                                                                     \
    struct SYI_TERMS_NAME(name) {                                                                            \
        char none; /* so that a kind without arguments has a structure */
#define SY_TERM_END(name)                                                                                    \
    }                                                                                                        \
    ;
#define SY_ARGUMENT(name, key, type, value, range, help) SYI_FIELD_##type(key)
#include SYI_TERMS_FILE
#undef SY_TERM_BEGIN
#undef SY_TERM_END
#undef SY_ARGUMENT
