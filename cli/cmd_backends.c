/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard backends: what was found, what was refused and why. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"

static void print_info(void *arg, const struct syi_backend_info *info)
{
    (*(int *)arg)++;
    if (info->refused) {
        printf("%-8s refused: %s\n", info->name, info->refused);
        return;
    }
    printf("%-8s %s, ABI %d.%d, %s%s%s%llu kernels; %s%s\n         %s\n         %s\n", info->name,
           info->version, info->abi_major, info->abi_minor, info->caps & SY_CAP_KERNELS ? "compute, " : "",
           info->caps & SY_CAP_COLLECTIVES ? "collectives, " : "",
           info->caps & SY_CAP_DEVICE ? "device memory, " : "", (unsigned long long)info->n_kernels,
           info->score > 0 ? "" : "would not work here: ", info->text, info->build, info->path);
}

int cli_backends(const struct cli_options *options)
{
    struct sy_error err = {0};
    int n = 0;
    (void)options;
    int status = syi_backend_list(print_info, &n, &err);
    if (status) return cli_fail(&err);
    if (!n) {
        cli_error("no backend found: set SWITCHYARD_BACKEND_PATH to the folder that holds switchyard-cpu.so");
        return CLI_FAILED;
    }
    printf("built in: comm self (one rank), comm thread (ranks as threads of one process)\n");
    return CLI_DONE;
}
