/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over files and folders, the table of kinds, a line for each case, and the summary. What a kind
 * computes is in kind_*.c. A bad file is a failed case with its reason. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verify/verify.h"

/* Every kind the vectors have; fn NULL: not implemented. */
static const struct kind {
    const char *name;
    verify_kind_fn fn;
} kinds[] = {{"layer", verify_layer},
             {"loss", verify_loss},
             {"router", verify_router},
             {"moe_layer", verify_moe_layer},
             {"model", verify_model},
             {"microbatch", verify_microbatch},
             {"train", verify_train},
             {"decode", verify_decode},
             {"optimizer", verify_optimizer},
             {"optimizer_state", verify_optimizer_state},
             {"multi_optimizer", verify_multi_optimizer},
             {"schedule", verify_schedule},
             {"action", verify_action},
             {"weight_metrics", verify_weight_metrics},
             {"partitioner", verify_partitioner},
             {"data", verify_data},
             {"import", verify_import}};

enum {
    N_KINDS = SYI_COUNT(kinds),
    OTHER = N_KINDS,
    DEPTH = 16
}; /* OTHER: files that do not say their kind */

struct tally {
    int64_t passed, failed, skipped, left_out; /* cases; left_out: of a kind that is not implemented */
    double error;                              /* the largest of all that were computed */
    char where[300];                           /* case and tensor of it */
};

struct walk {
    struct verify_context context;
    const struct verify_options *options;
    struct verify_summary *summary;
    struct tally tally[N_KINDS + 1];
};

/* ---- lines ---- */

/* Names and messages come from files: nothing goes out that a terminal would obey. */
static void emit(const struct walk *w, const char *format, ...) SYI_PRINTF(2, 3);
static void emit(const struct walk *w, const char *format, ...)
{
    char text[1400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    w->options->line(w->options->arg, text);
}

static void emit_tensors(const struct walk *w, const struct verify_report *r)
{
    for (size_t i = 0; w->options->verbose && i < r->n; i++) {
        const struct verify_result *x = &r->result[i];
        emit(w, "      %-4s %8.1e  %s%s%s", x->reason[0] ? "FAIL" : "ok", x->error, x->name,
             x->reason[0] ? ": " : "", x->reason);
    }
}

static int index_of(const char *kind)
{
    int i = 0;
    while (i < (int)N_KINDS && strcmp(kinds[i].name, kind)) i++;
    return i;
}

/* ---- one case ---- */

static void count_failure(struct walk *w, int kind, const char *label, const char *reason)
{
    emit(w, "FAIL  %s  %s", label, reason);
    w->tally[kind].failed++;
    w->summary->failed++;
}

static void count_skip(struct walk *w, int kind, const char *label, const char *reason, int refused)
{
    emit(w, "skip  %s  %s", label, reason);
    w->tally[kind].skipped++;
    w->summary->skipped++;
    w->summary->refused += refused;
}

static void judge(struct walk *w, int kind, const char *label, const struct verify_report *r)
{
    struct tally *t = &w->tally[kind];
    const struct verify_result *worst = verify_report_worst(r);
    if (!worst || r->status) {
        count_failure(w, kind, label, "out of memory");
        return;
    }
    if (worst->error > t->error && isfinite(worst->error)) {
        t->error = worst->error;
        snprintf(t->where, sizeof t->where, "%s %s", r->item->name, worst->name);
    }
    if (worst->reason[0]) {
        char reason[400];
        snprintf(reason, sizeof reason, "%.1e %s: %s", worst->error, worst->name, worst->reason);
        count_failure(w, kind, label, reason);
        return;
    }
    if (r->left_out)
        emit(w, "ok    %-44s %.1e %s, %d rows left out (--verbose says why)", label, worst->error,
             worst->name, r->left_out);
    else
        emit(w, "ok    %-44s %.1e %s", label, worst->error, worst->name);
    t->passed++;
    w->summary->passed++;
}

static void compute(struct walk *w, int kind, const char *label, struct verify_case *c)
{
    struct sy_error err = {0};
    struct verify_report report = {.item = c, .tolerance = w->options->tolerance};
    int status = verify_case_load(c, &err);
    if (!status) {
        report.covered = syi_alloc((c->n_tensors + 1) * sizeof *report.covered, &err);
        status = report.covered ? kinds[kind].fn(&w->context, c, &report, &err) : SY_ENOMEM;
    }
    if (status == SY_EUNSUPPORTED || status == VERIFY_NOT_BUILT) {
        count_skip(w, kind, label, err.text, status == SY_EUNSUPPORTED);
    } else if (status) {
        count_failure(w, kind, label, err.text[0] ? err.text : "failed without a message");
    } else {
        verify_report_end(&report);
        judge(w, kind, label, &report);
    }
    emit_tensors(w, &report);
    verify_report_free(&report);
}

/* Errors of reading begin with the path, which the line has already. */
static const char *without_path(const char *text, const char *path)
{
    size_t n = strlen(path);
    return !strncmp(text, path, n) && text[n] ? text + n + strspn(text + n, ": ") : text;
}

/* named: the path was given itself, and not found in a folder. open: verify_case_open or verify_case_open_folder. */
static void run_case(struct walk *w, const char *path, int named,
                     int (*open)(struct verify_case *c, const char *path, struct sy_error *err))
{
    char label[200];
    struct verify_case c;
    struct sy_error err = {0};
    int status = open(&c, path, &err), kind = status ? (int)OTHER : index_of(c.kind);
    snprintf(label, sizeof label, "%s/%s", c.kind, c.name);
    if (status)
        count_failure(w, OTHER, path, without_path(err.text, path));
    else if (kind == (int)OTHER)
        count_failure(w, OTHER, label, "a kind of case this program does not know");
    else if (!kinds[kind].fn && named)
        count_failure(w, kind, label, "cases of this kind are not implemented");
    else if (!kinds[kind].fn)
        w->tally[kind].left_out++;
    else if (w->options->no_backend)
        count_skip(w, kind, label, w->options->no_backend, 0);
    else
        compute(w, kind, label, &c);
    verify_case_close(&c);
}

/* ---- files and folders ---- */

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int is_case_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (!strcmp(dot, ".safetensors") || !strcmp(dot, ".json"));
}

/* A folder with expected.json is one case, whatever files it has. */
static int is_case_folder(const char *path)
{
    char *file = syi_format("%s/expected.json", path);
    int there = file && !access(file, F_OK);
    syi_free(file);
    return there;
}

/* A folder named after a kind that is not implemented stands for its files when it is named itself. */
static int names_kind_not_implemented(const char *folder)
{
    const char *slash = strrchr(folder, '/');
    int kind = index_of(slash ? slash + 1 : folder);
    return kind < (int)N_KINDS && !kinds[kind].fn;
}

static int walk_path(struct walk *w, const char *path, int depth, int named, struct sy_error *err);

static int walk_folder(struct walk *w, const char *path, int depth, int named, struct sy_error *err)
{
    struct dirent **entry = NULL;
    int status = SY_OK;
    if (depth == DEPTH) return syi_error(err, SY_EINVAL, "%s: folders are nested too deep", path);
    int n = scandir(path, &entry, visible, alphasort);
    if (n < 0) return syi_error_system(err, "%s: cannot be listed", path);
    for (int i = 0; i < n; i++) {
        struct stat info;
        char *inner = status ? NULL : syi_format("%s/%s", path, entry[i]->d_name);
        if (!status && !inner) status = syi_error(err, SY_ENOMEM, "out of memory");
        if (!status && (is_case_name(inner) || (!stat(inner, &info) && S_ISDIR(info.st_mode))))
            status = walk_path(w, inner, depth + 1, named, err);
        syi_free(inner);
        free(entry[i]);
    }
    free(entry);
    return status;
}

static int walk_path(struct walk *w, const char *path, int depth, int named, struct sy_error *err)
{
    struct stat info;
    int is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (is_folder && !is_case_folder(path))
        return walk_folder(w, path, depth, depth ? named : names_kind_not_implemented(path), err);
    run_case(w, path, named, is_folder ? verify_case_open_folder : verify_case_open);
    return SY_OK;
}

/* The last name of a path is that of a case or of a kind: slashes after it are left out. */
static int walk_given(struct walk *w, const char *path, struct sy_error *err)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    char *bare = syi_format("%.*s", (int)end, path);
    int status = bare ? walk_path(w, bare, 0, 1, err) : syi_error(err, SY_ENOMEM, "out of memory");
    syi_free(bare);
    return status;
}

/* ---- the summary ---- */

static void summarize(const struct walk *w)
{
    const struct verify_summary *s = w->summary;
    emit(w, "%s", "");
    emit(w, "%-16s %6s %6s %6s %7s  %s", "kind", "cases", "passed", "failed", "skipped", "largest error");
    for (int i = 0; i <= (int)N_KINDS; i++) {
        const struct tally *t = &w->tally[i];
        const char *name = i < (int)N_KINDS ? kinds[i].name : "(unknown)";
        long long cases = (long long)t->passed + t->failed + t->skipped;
        if (cases && t->where[0])
            emit(w, "%-16s %6lld %6lld %6lld %7lld  %.1e %s", name, cases, (long long)t->passed,
                 (long long)t->failed, (long long)t->skipped, t->error, t->where);
        else if (cases)
            emit(w, "%-16s %6lld %6lld %6lld %7lld  %s", name, cases, (long long)t->passed,
                 (long long)t->failed, (long long)t->skipped, t->passed ? "0" : "-");
        if (t->left_out) emit(w, "%-16s %6lld not implemented", name, (long long)t->left_out);
    }
    if (w->options->tolerance != 1) emit(w, "bounds were multiplied by %g", w->options->tolerance);
    emit(w, "%lld passed, %lld failed, %lld skipped", (long long)s->passed, (long long)s->failed,
         (long long)s->skipped);
}

int verify_paths(const struct syi_rank *rank, const struct verify_options *options,
                 struct verify_summary *summary, struct sy_error *err)
{
    int status = SY_OK;
    memset(summary, 0, sizeof *summary);
    struct walk *w = syi_alloc(sizeof *w, err);
    if (!w) return SY_ENOMEM;
    w->context.rank = rank;
    w->options = options;
    w->summary = summary;
    for (int i = 0; !status && i < options->n_paths; i++) status = walk_given(w, options->path[i], err);
    if (!status) summarize(w);
    syi_free(w);
    return status;
}
