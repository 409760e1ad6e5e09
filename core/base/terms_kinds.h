/* SPDX-License-Identifier: Apache-2.0 */
/* From a table of terms, the array `kinds` of struct syi_term_kind. Included by the one source of a table, after its
 * header and before it is done with SYI_TERMS_FILE and SYI_TERMS_NAME. No include guard. */
#define SY_TERM_BEGIN(name, inner, help) static const struct syi_option name##_arguments[] = {
#define SY_ARGUMENT(name, key, type, value, range, help)                                                     \
    {#key,                                                                                                   \
     SYI_OPTION_##type,                                                                                      \
     SYI_OPTION_TRAINING,                                                                                    \
     value,                                                                                                  \
     range,                                                                                                  \
     help,                                                                                                   \
     offsetof(struct SYI_TERMS_NAME(name), key),                                                             \
     sizeof(((struct SYI_TERMS_NAME(name) *)0)->key)},
#define SY_TERM_END(name)                                                                                    \
    {                                                                                                        \
        0                                                                                                    \
    }                                                                                                        \
    }                                                                                                        \
    ;
#include SYI_TERMS_FILE
#undef SY_TERM_BEGIN
#undef SY_TERM_END
#undef SY_ARGUMENT

enum { PLAIN, INNER, RATE };
#define SY_TERM_BEGIN(name, inner, help)                                                                     \
    [SYI_TERMS_ID(name)] = {#name,                                                                           \
                            help,                                                                            \
                            (inner) == INNER,                                                                \
                            (inner) == RATE,                                                                 \
                            name##_arguments,                                                                \
                            SYI_COUNT(name##_arguments) - 1,                                                 \
                            sizeof(struct SYI_TERMS_NAME(name))},
#define SY_TERM_END(name)
#define SY_ARGUMENT(name, key, type, value, range, help)
static const struct syi_term_kind kinds[] = {
#include SYI_TERMS_FILE
};
#undef SY_TERM_BEGIN
#undef SY_TERM_END
#undef SY_ARGUMENT
