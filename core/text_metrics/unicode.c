/* SPDX-License-Identifier: Apache-2.0 */
/* Code points: read from UTF-8, and looked up in the tables. */
#include "config.h"

#include "base/text.h"
#include "text_metrics/unicode.h"
#include "text_metrics/unicode_tables.h"

uint32_t syi_code_at(struct syi_span text, size_t at, size_t *bytes)
{
    static const unsigned char first[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const unsigned char *s = (const unsigned char *)text.text + at;
    int length = syi_utf8_length(s, text.bytes - at);
    uint32_t code = length ? s[0] & first[length] : SYI_CODE_BYTE + (uint32_t)s[0];

    for (int i = 1; i < length; i++) code = code << 6 | (s[i] & 0x3f);
    *bytes = length ? (size_t)length : 1;
    return code;
}

int syi_code_is_space(uint32_t code)
{
    if (code < 0x80) return code == ' ' || (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x1f);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

static int is_in(const struct range *ranges, size_t n, uint32_t code)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && code >= ranges[low].first;
}

int syi_code_is_word(uint32_t code)
{
    return is_in(words, SYI_COUNT(words), code);
}

int syi_code_is_cased(uint32_t code)
{
    return is_in(cased, SYI_COUNT(cased), code);
}

/* Runs of different strides may lie in each other, so all are looked at from the first that reaches the code. */
uint32_t syi_code_lower(uint32_t code)
{
    if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
    if (code == 0x130) return 'i';
    for (size_t i = 0; i < SYI_COUNT(lowers) && lowers[i].first <= code; i++)
        if (code <= lowers[i].last && (code - lowers[i].first) % lowers[i].stride == 0)
            return (uint32_t)((int64_t)code + lowers[i].delta);
    return code;
}
