/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that choose names and give them others (train.init_match). */
#include "config.h"

#include <string.h>

#include "base/rename.h"

static int count_stars(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '*';
    return n;
}

/* Copies [begin, end) without the blanks around it. */
static void copy_trimmed(const char *begin, const char *end, char to[SYI_CONFIG_STRING])
{
    while (begin < end && *begin == ' ') begin++;
    while (begin < end && end[-1] == ' ') end--;
    snprintf(to, SYI_CONFIG_STRING, "%.*s", (int)(end - begin), begin);
}

static int refuse(char reason[SYI_REASON], const char *text, const char *why)
{
    snprintf(reason, SYI_REASON, "\"%.120s\": %s", text, why);
    return SY_EINVAL;
}

int syi_rename_parse(const char *text, struct syi_rename *rule, char reason[SYI_REASON])
{
    const char *arrow = strstr(text, "->"), *end = text + strlen(text);
    *rule = (struct syi_rename){.excludes = *text == '!'};
    if (strlen(text) >= SYI_CONFIG_STRING) return refuse(reason, text, "is too long");
    copy_trimmed(text + rule->excludes, arrow ? arrow : end, rule->from);
    if (arrow) copy_trimmed(arrow + 2, end, rule->to);
    if (!*rule->from) return refuse(reason, text, "has no pattern");
    if (!arrow) return SY_OK;
    if (rule->excludes) return refuse(reason, text, "leaves names out, so it gives them no other");
    if (!*rule->to) return refuse(reason, text, "has no name after ->");
    if (strchr(rule->to, '?')) return refuse(reason, text, "a ? in the new name stands for nothing");
    if (count_stars(rule->to) > count_stars(rule->from))
        return refuse(reason, text, "has more * in the new name than in the pattern");
    if (count_stars(rule->to) > SYI_STARS) return refuse(reason, text, "has more than 8 * in the new name");
    return SY_OK;
}

int syi_rename_match(const struct syi_rename *rule, const char *name, char **renamed)
{
    struct syi_star star[SYI_STARS];
    int next = 0;
    if (!syi_pattern_stars(rule->from, name, star)) return 0;
    if (!renamed) return 1;
    char *out = *renamed = syi_alloc(strlen(rule->to) + strlen(name) + 1, NULL);
    if (!out) return 1;
    if (!*rule->to) strcpy(out, name);
    for (const char *at = rule->to; *at; at++) {
        const struct syi_star one = {at, at + 1}, *from = *at == '*' ? &star[next++] : &one;
        size_t bytes = (size_t)(from->end - from->begin);
        memcpy(out, from->begin, bytes);
        out += bytes;
    }
    return 1;
}
