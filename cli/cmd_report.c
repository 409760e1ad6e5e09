/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard report RUN_DIR...: one page of HTML with all there is to see of some runs. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/report/report.h"

/* An older report is replaced, nothing else: a word left out on the command line must not cost a file. */
static int check_output(const char *path, struct sy_error *err)
{
    char begin[64] = "";
    struct stat info;
    if (!stat(path, &info) && !S_ISREG(info.st_mode)) /* of a pipe, reading would not end */
        return syi_error(err, SY_EINVAL, "report: %s is no file: give the name of one for the page", path);
    FILE *file = fopen(path, "rb");
    if (!file)
        return errno == ENOENT
                   ? SY_OK
                   : syi_error_system(err, "report: %s is there already and cannot be read", path);
    size_t length = strlen(cli_report_mark), got = fread(begin, 1, sizeof begin - 1, file);
    fclose(file);
    if (got >= length && !memcmp(begin, cli_report_mark, length)) return SY_OK;
    return syi_error(err, SY_EINVAL, "report: %s is there already and is no report: choose another name",
                     path);
}

static int make_page(const struct cli_options *o, struct cli_report_run *runs, struct syi_text *page,
                     struct sy_error *err)
{
    int status = check_output(o->output, err);
    for (int i = 0; i < o->n_operands && !status; i++) {
        runs[i].path = o->operand[i];
        status = cli_report_open(&runs[i], err);
    }
    if (!status) status = cli_report_page(runs, o->n_operands, page, err);
    for (int i = 0; i < o->n_operands; i++) cli_report_close(&runs[i]);
    if (!status) status = syi_file_replace(o->output, page->data, page->length, err);
    return status;
}

int cli_report(const struct cli_options *o)
{
    struct sy_error err = {0};
    struct syi_text page = {0};
    if (!o->output) {
        cli_error("report: where to? switchyard report RUN_DIR... -o FILE.html");
        return CLI_USAGE;
    }
    if (o->n_operands > CLI_REPORT_RUNS) {
        cli_error("report: %d runs; one page has %d at most, more would not be told apart", o->n_operands,
                  CLI_REPORT_RUNS);
        return CLI_USAGE;
    }
    struct cli_report_run *runs = syi_alloc((size_t)o->n_operands * sizeof *runs, &err);
    int status = runs ? make_page(o, runs, &page, &err) : SY_ENOMEM;
    if (!status) printf("%s: %zu KiB\n", o->output, (page.length + 1023) / 1024);
    syi_text_free(&page);
    syi_free(runs);
    return status ? cli_fail(&err) : CLI_DONE;
}
