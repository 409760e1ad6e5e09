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
    default: return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? "\ufffd" : NULL;
    }
}

void cli_html(struct syi_text *out, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    for (size_t left = strlen(text); left;) {
        int bytes = syi_utf8_length(c, left);
        const char *other = bytes == 1 ? entity(*c) : NULL;
        if (!bytes || (bytes == 2 && c[0] == 0xc2 && c[1] < 0xa0))
            other = "\ufffd"; /* no UTF-8, or C1 controls */
        if (other)
            syi_text_puts(out, other);
        else
            syi_text_append(out, c, (size_t)bytes);
        c += bytes ? bytes : 1;
        left -= (size_t)(bytes ? bytes : 1);
    }
}
