/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard backends: what was found, what was refused and why. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"
#include "train/launch/variant.h"

enum { INDENT = 9 };

struct listing {
    struct syi_text line;
    int n;
};

static void print_info(void *arg, const struct syi_backend_info *info)
{
    struct listing *list = arg;
    struct syi_text *line = &list->line;
    list->n++;
    line->length = 0;
    syi_text_printf(line, "%-8s ", info->name);
    if (info->refused)
        syi_text_printf(line, "refused: %s", info->refused);
    else
        syi_text_printf(line, "%s, ABI %d.%d, %s%s%s%llu kernels; %s%s", info->version, info->abi_major,
                        info->abi_minor, info->caps & SY_CAP_KERNELS ? "compute, " : "",
                        info->caps & SY_CAP_COLLECTIVES ? "collectives, " : "",
                        info->caps & SY_CAP_DEVICE ? "device memory, " : "",
                        (unsigned long long)info->n_kernels,
                        info->score > 0 ? "" : "would not work here: ", info->text);
    if (line->status) return; /* told at the end */
    cli_print_line(line->data, INDENT);
    if (!info->refused) printf("%*s%s\n%*s%s\n", INDENT, "", info->build, INDENT, "", info->path);
}

/* A slow build, as for sanitizers on a busy machine, has hundredths of a GFLOP/s: more digits for what is below one. */
static void print_speed(double flops)
{
    double giga = flops * 1e-9;
    printf(" %9.*f", giga < 1 ? 4 : 1, giga);
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
    for (int i = 0; i < n; i++) {
        printf("  %-12s", syi_variant_name(speed[i].variant));
        print_speed(speed[i].flops[SYI_DTYPE_FLOAT32]);
        print_speed(speed[i].flops[SYI_DTYPE_BFLOAT16]);
        printf("%s\n",
               syi_variant_bfloat16(speed[i].variant) == SYI_CPU_BFLOAT16_AUTO ? "  by name only" : "");
    }
    if (!SY_TRAINING) {
        cli_print_line(
            "  auto takes the widest that is not by name only: this build answers, and measures nothing at start",
            4);
        return CLI_DONE;
    }
    char line[160];
    int single = syi_variant_of_measured(speed, n, SYI_DTYPE_FLOAT32, SYI_CPU_BFLOAT16_AUTO),
        half = syi_variant_of_measured(speed, n, SYI_DTYPE_BFLOAT16, SYI_CPU_BFLOAT16_AUTO);
    snprintf(line, sizeof line, "  auto takes %s in runs of float32, %s in those of bfloat16 that begin here",
             syi_variant_name(single), syi_variant_name(half));
    cli_print_line(line, 4);
    snprintf(line, sizeof line,
             "  with matrix tiles sums have parts of at least %d elements (reproducible.min_leaf)",
             SYI_MIN_LEAF_TILES);
    if (half == SYI_CPU_VARIANT_AMX_BF16) cli_print_line(line, 4);
    return CLI_DONE;
}

int cli_backends(const struct cli_options *options)
{
    struct sy_error err = {0};
    struct listing list = {0};
    int status = syi_backend_list(print_info, &list, &err);
    if (!status) status = syi_text_status(&list.line, &err);
    syi_text_free(&list.line);
    if (status) return cli_fail(&err);
    if (!list.n) {
        cli_error("no backend found: set SWITCHYARD_BACKEND_PATH to the folder that holds switchyard-cpu.so");
        return CLI_FAILED;
    }
    printf("built in: comm self (one rank), comm thread (ranks as threads of one process)\n");
    return options->verbose ? print_variants() : CLI_DONE;
}
