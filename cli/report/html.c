/* SPDX-License-Identifier: Apache-2.0 */
/* Text of anybody as text of a page, never as markup. */
#include "config.h"

#include <string.h>

#include "cli/report/plot.h"

static const char *entity(unsigned char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

void cli_html(struct syi_text *out, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    for (size_t left = strlen(text); left;) {
        int bytes, shown = syi_utf8_is_shown(c, left, &bytes) || *c == '\n' || *c == '\t';
        const char *other = shown ? entity(*c) : "\ufffd";
        if (other)
            syi_text_puts(out, other);
        else
            syi_text_append(out, c, (size_t)bytes);
        c += bytes;
        left -= (size_t)bytes;
    }
}
