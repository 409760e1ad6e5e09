/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard backends: what was found, what was refused and why. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"
#include "train/launch/variant.h"

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

/* What auto measures at the start of a run, here of all variants. */
static int print_variants(void)
{
    struct syi_variant_speed speed[SYI_VARIANTS];
    struct sy_error err = {0};
    int n, status = syi_variant_measure(speed, &n, &err);
    if (status) return cli_fail(&err);
    printf("variants of cpu, GFLOP/s of a thread in a product that stays in its caches:\n");
    printf("  %-12s %9s %9s\n", "", "float32", "bfloat16");
    for (int i = 0; i < n; i++)
        printf("  %-12s %9.1f %9.1f%s\n", syi_variant_name(speed[i].variant),
               speed[i].flops[SYI_DTYPE_FLOAT32] * 1e-9, speed[i].flops[SYI_DTYPE_BFLOAT16] * 1e-9,
               syi_variant_bfloat16(speed[i].variant) == SYI_CPU_BFLOAT16_AUTO ? "  by name only" : "");
    if (!SY_TRAINING) {
        printf(
            "  auto takes the widest that is not by name only: this build answers, and measures nothing at start\n");
        return CLI_DONE;
    }
    printf("  auto takes %s in runs of float32, %s in those of bfloat16 that begin here\n",
           syi_variant_name(syi_variant_of_measured(speed, n, SYI_DTYPE_FLOAT32, SYI_CPU_BFLOAT16_AUTO)),
           syi_variant_name(syi_variant_of_measured(speed, n, SYI_DTYPE_BFLOAT16, SYI_CPU_BFLOAT16_AUTO)));
    return CLI_DONE;
}

int cli_backends(const struct cli_options *options)
{
    struct sy_error err = {0};
    int n = 0;
    int status = syi_backend_list(print_info, &n, &err);
    if (status) return cli_fail(&err);
    if (!n) {
        cli_error("no backend found: set SWITCHYARD_BACKEND_PATH to the folder that holds switchyard-cpu.so");
        return CLI_FAILED;
    }
    printf("built in: comm self (one rank), comm thread (ranks as threads of one process)\n");
    return options->verbose ? print_variants() : CLI_DONE;
}
