/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the tensors of a bound program by their roles: an index a program, made at bind. */
#include "config.h"

#include <stdlib.h>

#include "runtime/bound.h"

static int compare_roles(const void *a, const void *b)
{
    const struct syi_found *x = a, *y = b;
    int by_role = (x->role > y->role) - (x->role < y->role);
    return by_role ? by_role : (x->of > y->of) - (x->of < y->of);
}

int syi_bound_index(const struct syi_session *session, struct syi_bound *bound, struct sy_error *err)
{
    const struct syi_program *p = bound->program;
    size_t n = 0;
    for (size_t i = 0; i < p->n_tensors; i++) n += p->tensor[i].role != SYI_ROLE_NONE;
    bound->found = syi_alloc(n * sizeof *bound->found, err);
    if (!bound->found) return SY_ENOMEM;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct syi_tensor *t = &p->tensor[i];
        if (t->role != SYI_ROLE_NONE)
            bound->found[bound->n_found++] =
                (struct syi_found){t->role, t->of, syi_bound_tensor(session, t, session->segment)};
    }
    qsort(bound->found, n, sizeof *bound->found, compare_roles);
    for (size_t i = 1; i < n; i++)
        if (!compare_roles(&bound->found[i - 1], &bound->found[i]))
            return syi_error(err, SY_EINTERNAL, "%s: two tensors are %s %u", p->title,
                             syi_role_name(bound->found[i].role), bound->found[i].of);
    return SY_OK;
}

const struct sy_tensor *syi_session_find(const struct syi_session *session, int program, enum syi_role role,
                                         uint32_t of)
{
    const struct syi_found key = {.role = role, .of = of}, *found;
    if (program < 0 || (size_t)program >= session->n_bound) return NULL;
    const struct syi_bound *bound = &session->bound[program];
    if (!bound->n_found) return NULL;
    found = bsearch(&key, bound->found, bound->n_found, sizeof key, compare_roles);
    return found ? &found->tensor : NULL;
}

const struct sy_tensor *syi_session_find_any(const struct syi_session *session, enum syi_role role,
                                             uint32_t of)
{
    const struct sy_tensor *found = NULL;
    for (size_t i = 0; i < session->n_bound && !found; i++)
        found = syi_session_find(session, (int)i, role, of);
    return found;
}
