/* SPDX-License-Identifier: Apache-2.0 */
/* The option --steps. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "cli/ckpt/ckpt.h"

int ckpt_parse_steps(const char *text, int64_t **step, size_t *n, struct sy_error *err)
{
    size_t room = 1, count = 0;
    for (const char *at = text; *at; at++) room += *at == ',';
    int64_t *list = syi_alloc(room * sizeof *list, err);
    if (!list) return SY_ENOMEM;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        list[count] = strtoll(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || (*end && *end != ',')) {
            syi_free(list);
            return syi_error(err, SY_EINVAL, "--steps=%s: expected steps with commas between them", text);
        }
        for (size_t i = 0; i < count; i++)
            if (list[i] == list[count]) {
                syi_free(list);
                return syi_error(err, SY_EINVAL, "--steps=%s: a step is given twice", text);
            }
        count++;
        at = end;
        if (!*at) break;
    }
    *step = list;
    *n = count;
    return SY_OK;
}
