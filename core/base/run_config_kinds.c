/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of kinds of parts and of their options, made of options.def. */
#include "config.h"

#include "base/run_config.h"

#define SY_SECTION_BEGIN(kind, help)      static const struct syi_option kind##_options[] = {
#define SY_PARTS_BEGIN(kind, names, help) SY_SECTION_BEGIN(kind, help)
#define SY_SECTION_END(kind)                                                                                 \
    }                                                                                                        \
    ;
#define SY_PARTS_END(kind) SY_SECTION_END(kind)
#define SY_OPTION(kind, key, type, value, range, flags, help)                                                \
    {#key,                                                                                                   \
     SYI_OPTION_##type,                                                                                      \
     SYI_OPTION_##flags,                                                                                     \
     value,                                                                                                  \
     range,                                                                                                  \
     help,                                                                                                   \
     offsetof(struct syi_##kind##_part, key),                                                                \
     sizeof(((struct syi_##kind##_part *)0)->key)},
#include "base/options.def"

#define KIND(kind, help, names, first, count, given)                                                         \
    {#kind,                                                                                                  \
     help,                                                                                                   \
     SYI_PART_##names,                                                                                       \
     kind##_options,                                                                                         \
     SYI_COUNT(kind##_options),                                                                              \
     offsetof(struct syi_config, first),                                                                     \
     sizeof(struct syi_##kind##_part),                                                                       \
     count,                                                                                                  \
     given},
#define SY_SECTION_BEGIN(kind, help) KIND(kind, help, ONCE, kind, 0, 0)
#define SY_PARTS_BEGIN(kind, names, help)                                                                    \
    KIND(kind, help, names, kind.part, offsetof(struct syi_config, kind.n),                                  \
         offsetof(struct syi_config, kind.given))
static const struct syi_part_kind kinds[] = {
#include "base/options.def"
};

const struct syi_part_kind *syi_config_kinds(size_t *n)
{
    *n = SYI_COUNT(kinds);
    return kinds;
}

void syi_key_text(const struct syi_part_kind *kind, const char *part, const struct syi_option *option,
                  char text[SYI_KEY])
{
    snprintf(text, SYI_KEY, "%s%s%s.%s", kind->name, *part ? "." : "", part, option->name);
}
