/* SPDX-License-Identifier: Apache-2.0 */
/* Kind optimizer: steps of one optimizer on given gradients; parameters and state after each. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "verify/optim_case.h"

static int read_case(struct verify_optim *o, struct sy_error *err)
{
    const char *name;
    int status = verify_text(o->item, "optimizer", &name, err);
    if (!status) status = verify_optim_read(o, name, err);
    if (!status) status = verify_int(o->item, "n_steps", 1, 1 << 20, &o->steps, err);
    return status ? status : verify_optim_rates(o, err);
}

int verify_optimizer(struct verify_context *context, const struct verify_case *c,
                     struct verify_report *report, struct sy_error *err)
{
    struct verify_optim *o = syi_alloc(sizeof *o, err);
    if (!o) return SY_ENOMEM;
    o->item = c;
    int status = read_case(o, err);
    if (!status) status = verify_optim_open(o, context, err);
    if (!status) status = verify_optim_run(o, report, err);
    verify_optim_close(o);
    syi_free(o);
    return status;
}
