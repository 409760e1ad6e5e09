/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard report in parts: numbers of runs (gather.c), heat maps (heat.c, task_maps.c), tables (tables.c, compare.c), the page
 * (page.c). Curves are plot.h's. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "cli/report/plot.h"
#include "metrics/reader.h"

enum { CLI_REPORT_RUNS = 8, CLI_HEAT_COLUMNS = 108, CLI_HEAT_LEVELS = 9, CLI_REPORT_EVALS = 64 };

/* How the tokens of one layer spread over its experts, over time. */
struct cli_heat {
    char *layer;
    int n_experts;
    size_t capacity;       /* of tokens */
    double *tokens;        /* (n_experts, CLI_HEAT_COLUMNS) sums */
    double dropped, taken; /* sums over all */
};

/* Where the tokens of a task went in a layer, by its newest evaluation. */
struct cli_task_load {
    char *layer, *task;
    int64_t step;
    int n_experts;
    size_t capacity; /* of tokens */
    double *tokens;  /* (n_experts) */
};

/* What the loss is the sum of. */
enum cli_part {
    CLI_CROSS_ENTROPY,
    CLI_LABEL_SMOOTHING,
    CLI_Z_LOSS,
    CLI_AUXILIARY_LOSS,
    CLI_ROUTER_Z_LOSS,
    CLI_PARTS
};

struct cli_eval {
    char *task, *name;
    struct cli_series *series;
};

struct cli_report_run {
    const char *path; /* borrowed */
    char name[128], state[400], host[256], version[64], began[40];
    int64_t attempts;
    int64_t last_step; /* of any row that is valid */
    char *config;      /* of the newest attempt */
    struct syi_reader *reader;
    struct cli_series loss, smooth, rate, norm, spikes, speed, part[CLI_PARTS];
    double mean_loss, mean_speed; /* of the last 50 rows; of all. NaN where there is none */
    int n_evals, evals_left_out;
    struct cli_eval eval[CLI_REPORT_EVALS]; /* in the order of tasks and names */
    struct cli_heat *heat;
    size_t n_heat, heat_capacity;
    struct cli_task_load *task_load; /* those of a layer one after the other */
    size_t n_task_loads, task_load_capacity;
    int64_t routing_steps, heat_steps; /* recorded; those that the heat maps are made of */
};

/* Starts from {.path = ...}. Opens the database and reads who, when and how far. */
int cli_report_open(struct cli_report_run *run, struct sy_error *err) SYI_MUST_CHECK;
/* Reads the curves, for plots from step 0 to last_step. */
int cli_report_gather(struct cli_report_run *run, int64_t last_step, struct sy_error *err) SYI_MUST_CHECK;
void cli_report_close(struct cli_report_run *run);

/* A heat map of each layer, for steps 0 to last_step. */
void cli_heat_maps(const struct cli_report_run *run, int64_t last_step, struct syi_text *out);

/* A map of each layer with the experts of the tasks that were evaluated; nothing where they are fewer than two. */
void cli_task_maps(const struct cli_report_run *run, struct syi_text *out);

/* Cells in the colours of heat maps. Neighbours of one colour in a row are one cell. */
struct cli_cells {
    int rows, columns;
    double left, width, height; /* where they begin; of a cell */
    const signed char *level;   /* (rows, columns) 0..CLI_HEAT_LEVELS - 1; -1: none */
};
void cli_put_cells(const struct cli_cells *cells, struct syi_text *out);
/* 0: a quarter of a fair share of all tokens or less; the middle: fair; the highest: four times as much or more. */
int cli_heat_level(double tokens, double all, int n_experts);

/* Several runs side by side: their last numbers; the keys of their run files that differ. */
void cli_report_compare(const struct cli_report_run *runs, int n, struct syi_text *out);
int cli_report_differences(const struct cli_report_run *runs, int n, struct syi_text *out,
                           struct sy_error *err) SYI_MUST_CHECK;

/* Tables of one run, from its database. */
int cli_report_tables(const struct cli_report_run *run, struct syi_text *out,
                      struct sy_error *err) SYI_MUST_CHECK;

/* The whole page; it begins with cli_report_mark. */
int cli_report_page(struct cli_report_run *runs, int n, struct syi_text *out,
                    struct sy_error *err) SYI_MUST_CHECK;
extern const char cli_report_mark[];

#endif
