/* SPDX-License-Identifier: Apache-2.0 */
/* Rules make offers (a name and the tensor that goes by it), parameters take them. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/rename.h"
#include "train/init/init_plan.h"

/* A tensor under a name of the model. */
struct offer {
    char *name; /* owned */
    const struct syi_safetensors_tensor *from;
    enum syi_take how; /* SAME; EXPERT or MEAN: experts under the name of a dense MLP */
    int order;         /* of offers with one name that of the smallest is taken */
};

struct planning {
    const struct syi_train_part *train;
    const struct syi_model *model;
    const struct syi_safetensors *file;
    struct syi_init_plan *plan;
    struct offer *offer; /* [n] by name, then order */
    size_t n, capacity;
    uint8_t *excluded; /* [file->n_tensors] by the rules so far */
    struct sy_error *err;
};

const char *syi_init_name(const struct syi_safetensors_tensor *tensor)
{
    return strncmp(tensor->name, "target/", 7) ? tensor->name : tensor->name + 7;
}

enum { NAME = sizeof((struct syi_param *)0)->name };

/* "encoder/layers_0/mlp/wo/kernel" of "encoder/layers_0/mlp/expert/wo/kernel": what weights of experts are called in a
 * dense MLP. 0: they are not of experts, or longer than names of parameters are. */
static int dense_name(const char *name, char dense[NAME])
{
    const char *expert = strstr(name, "/expert/");
    return expert &&
           snprintf(dense, NAME, "%.*s%s", (int)(expert - name), name, expert + strlen("/expert")) < NAME;
}

void syi_init_shape(int rank, const int64_t *dims, char text[SYI_SHAPE_TEXT])
{
    size_t used = (size_t)snprintf(text, SYI_SHAPE_TEXT, "[");
    for (int d = 0; d < rank; d++)
        used +=
            (size_t)snprintf(text + used, SYI_SHAPE_TEXT - used, "%s%lld", d ? "," : "", (long long)dims[d]);
    snprintf(text + used, SYI_SHAPE_TEXT - used, "]");
}

/* ---- offers ---- */

/* Takes over name, which is NULL where memory is short. */
static int add_offer(struct planning *p, char *name, const struct syi_safetensors_tensor *from,
                     enum syi_take how, int order)
{
    int status = name ? SYI_GROW(p->offer, p->capacity, p->n + 1, p->err)
                      : syi_error(p->err, SY_ENOMEM, "out of memory");
    if (status)
        syi_free(name);
    else
        p->offer[p->n++] = (struct offer){name, from, how, order};
    return status;
}

/* Experts under the name of a dense MLP, after all that really have it. */
static int offer_experts(struct planning *p, const char *name, const struct syi_safetensors_tensor *from,
                         int order)
{
    enum syi_take how = strcmp(p->train->init_expert, "mean") ? SYI_TAKE_EXPERT : SYI_TAKE_MEAN;
    char dense[NAME];
    if (!*p->train->init_expert || !dense_name(name, dense)) return SY_OK;
    return add_offer(p, syi_strdup(dense, p->err), from, how, order + p->train->init_match.n);
}

static int offer_tensor(struct planning *p, const struct syi_rename *rule, size_t i, int order, int *about)
{
    const struct syi_safetensors_tensor *from = &p->file->tensors[i];
    char *name = NULL;
    if (!syi_rename_match(rule, syi_init_name(from), rule->excludes || p->excluded[i] ? NULL : &name))
        return SY_OK;
    *about = 1;
    if (rule->excludes) p->excluded[i] = 1;
    if (p->excluded[i]) return SY_OK;
    int status = add_offer(p, name, from, SYI_TAKE_SAME, order);
    return status ? status : offer_experts(p, name, from, order);
}

static const char *nearest_name(const struct syi_safetensors *file, const char *pattern)
{
    const char *nearest = "";
    int least = 1 << 30;
    for (size_t i = 0; i < file->n_tensors; i++) {
        int distance = syi_edit_distance(pattern, syi_init_name(&file->tensors[i]));
        if (distance < least) least = distance, nearest = syi_init_name(&file->tensors[i]);
    }
    return nearest;
}

static int apply_rule(struct planning *p, int order)
{
    const char *text = syi_strings_at(&p->train->init_match, order);
    struct syi_rename rule;
    char reason[SYI_REASON];
    int about = 0, status = syi_rename_parse(text, &rule, reason);
    if (status) return syi_error(p->err, status, "train.init_match: %s", reason);
    for (size_t i = 0; i < p->file->n_tensors && !status; i++)
        status = offer_tensor(p, &rule, i, order, &about);
    if (status || about) return status;
    return syi_error(p->err, SY_EINVAL,
                     "train.init_match: \"%.200s\" matches no tensor of %s, the nearest is %s", text,
                     p->file->path, nearest_name(p->file, rule.from));
}

static int by_name(const void *a, const void *b)
{
    const struct offer *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->order > y->order) - (x->order < y->order);
}

static int make_offers(struct planning *p)
{
    int status = SY_OK;
    for (int i = 0; i < p->train->init_match.n && !status; i++) status = apply_rule(p, i);
    if (status || !p->n) return status;
    qsort(p->offer, p->n, sizeof *p->offer, by_name);
    for (size_t i = 1; i < p->n; i++)
        if (!by_name(&p->offer[i - 1], &p->offer[i]))
            return syi_error(
                p->err, SY_EINVAL, "train.init_match: \"%.200s\" gives both %s and %s to %s",
                syi_strings_at(&p->train->init_match, p->offer[i].order % p->train->init_match.n),
                syi_init_name(p->offer[i - 1].from), syi_init_name(p->offer[i].from), p->offer[i].name);
    return SY_OK;
}

/* The first of that name, or NULL. */
static const struct offer *find(const struct planning *p, const char *name)
{
    size_t low = 0, high = p->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(p->offer[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->n && !strcmp(p->offer[low].name, name) ? &p->offer[low] : NULL;
}

/* ---- parameters ---- */

/* The dense MLP that experts may be copies of, or NULL. */
static const struct offer *find_dense(const struct planning *p, const struct syi_param *param)
{
    char name[NAME];
    const struct offer *offer =
        param->axis[0] == SYI_AXIS_EXPERT && dense_name(param->name, name) ? find(p, name) : NULL;
    return offer && offer->how == SYI_TAKE_SAME ? offer : NULL;
}

static int fits(const struct syi_param *param, const struct syi_taken *taken)
{
    const struct syi_safetensors_tensor *from = taken->from;
    int mine = taken->how == SYI_TAKE_COPIES,
        theirs = taken->how == SYI_TAKE_EXPERT || taken->how == SYI_TAKE_MEAN;
    int rank = param->rank - mine;
    return from->rank - theirs == rank &&
           !memcmp(from->dims + theirs, param->dim + mine, (size_t)rank * sizeof *from->dims);
}

static int check_source(const struct planning *p, const struct syi_param *param,
                        const struct syi_taken *taken)
{
    const struct syi_safetensors_tensor *from = taken->from;
    if (from->dtype != SYI_SAFETENSORS_F32 && from->dtype != SYI_SAFETENSORS_BF16)
        return syi_error(p->err, SY_EMISMATCH, "%s holds %s as %s: only F32 and BF16 can be taken for %s",
                         p->file->path, syi_init_name(from), syi_safetensors_dtype_name(from->dtype),
                         param->name);
    if (taken->how == SYI_TAKE_EXPERT && taken->expert >= from->dims[0])
        return syi_error(p->err, SY_EINVAL, "train.init_expert = %lld: %s has %lld experts, from 0 on",
                         (long long)taken->expert, syi_init_name(from), (long long)from->dims[0]);
    return SY_OK;
}

static int choose(struct planning *p, const struct syi_param *param, struct syi_taken *taken)
{
    const struct offer *offer = find(p, param->name);
    int copies = !offer && p->train->init_upcycle;
    if (copies) offer = find_dense(p, param);
    *taken = (struct syi_taken){0};
    if (!offer) return SY_OK;
    taken->how = copies ? SYI_TAKE_COPIES : offer->how;
    taken->from = offer->from;
    if (taken->how == SYI_TAKE_EXPERT) syi_config_number(p->train->init_expert, &taken->expert);
    if (fits(param, taken)) return check_source(p, param, taken);
    taken->how = SYI_TAKE_NOTHING;
    return SY_OK;
}

/* Whether it belongs to the router of a layer whose experts are copies: that has nothing to take. */
static int is_new_router(const struct planning *p, const struct syi_param *param)
{
    const char *router = strstr(param->name, "/router/");
    size_t bytes = router ? (size_t)(router - param->name) : 0;
    for (size_t i = 0; router && i < p->model->n; i++)
        if (p->plan->param[i].how == SYI_TAKE_COPIES &&
            !strncmp(p->model->param[i].name, param->name, bytes) &&
            !strncmp(p->model->param[i].name + bytes, "/expert/", 8))
            return 1;
    return 0;
}

/* What would give a parameter something, for the end of a message. */
static const char *advice(const struct planning *p, const struct syi_param *param)
{
    if (!p->train->init_upcycle && find_dense(p, param))
        return "; train.init_upcycle = true makes copies of its dense MLP the experts";
    for (size_t i = 0; i < p->n && !*p->train->init_expert; i++) {
        char dense[NAME];
        if (dense_name(p->offer[i].name, dense) && !strcmp(dense, param->name))
            return "; train.init_expert takes one of its experts, or their mean";
    }
    return "; train.init_match can take a tensor under another name, train.init_missing = \"fresh\" draws from the seed "
           "what is missing";
}

static int refuse(const struct planning *p, const struct syi_param *param, const struct syi_taken *taken)
{
    char has[SYI_SHAPE_TEXT], wants[SYI_SHAPE_TEXT];
    syi_init_shape(param->rank, param->dim, wants);
    if (!taken->from)
        return syi_error(p->err, SY_EMISMATCH, "%s has nothing for the parameter %s %s%s", p->file->path,
                         param->name, wants, advice(p, param));
    syi_init_shape(taken->from->rank, taken->from->dims, has);
    return syi_error(
        p->err, SY_EMISMATCH,
        "%s holds %s with shape %s, and the parameter %s of this model has %s; leave it out by "
        "train.init_match, and set train.init_missing = \"fresh\", which draws from the seed what is "
        "missing",
        p->file->path, syi_init_name(taken->from), has, param->name, wants);
}

/* What was asked for must have come about. */
static int check_asked(const struct planning *p)
{
    size_t n = 0, copies = 0, dense = 0;
    for (size_t i = 0; i < p->model->n; i++) {
        enum syi_take how = p->plan->param[i].how;
        n += how != SYI_TAKE_NOTHING;
        copies += how == SYI_TAKE_COPIES;
        dense += how == SYI_TAKE_EXPERT || how == SYI_TAKE_MEAN;
    }
    if (p->train->init_upcycle && !copies)
        return syi_error(
            p->err, SY_EINVAL,
            "train.init_upcycle: no layer of this model has experts where that of %s has a dense "
            "MLP of their shape; leave the key out",
            p->file->path);
    if (*p->train->init_expert && !dense)
        return syi_error(
            p->err, SY_EINVAL,
            "train.init_expert: no layer of this model has a dense MLP where that of %s has experts "
            "of its shape; leave the key out",
            p->file->path);
    return n ? SY_OK
             : syi_error(p->err, SY_EMISMATCH, "%s has nothing that this model could take", p->file->path);
}

static int choose_all(struct planning *p)
{
    const struct syi_model *model = p->model;
    int status = SY_OK;
    for (size_t i = 0; i < model->n && !status; i++) {
        struct syi_taken *taken = &p->plan->param[i];
        status = choose(p, &model->param[i], taken);
        if (!status && taken->how != SYI_TAKE_NOTHING) p->plan->used[taken->from - p->file->tensors] = 1;
    }
    for (size_t i = 0; i < model->n && !status && p->train->init_missing == SYI_INIT_MISSING_ERROR; i++) {
        const struct syi_taken *taken = &p->plan->param[i];
        if (taken->how == SYI_TAKE_NOTHING && (taken->from || !is_new_router(p, &model->param[i])))
            status = refuse(p, &model->param[i], taken);
    }
    return status ? status : check_asked(p);
}

int syi_init_plan(const struct syi_train_part *train, const struct syi_model *model,
                  const struct syi_safetensors *file, struct syi_init_plan *plan, struct sy_error *err)
{
    struct planning p = {.train = train, .model = model, .file = file, .plan = plan, .err = err};
    int status = SY_ENOMEM;
    *plan = (struct syi_init_plan){syi_alloc(model->n * sizeof *plan->param, err),
                                   syi_alloc(file->n_tensors, err)};
    p.excluded = syi_alloc(file->n_tensors, err);
    if (plan->param && plan->used && p.excluded) status = make_offers(&p);
    if (!status) status = choose_all(&p);
    for (size_t i = 0; i < p.n; i++) syi_free(p.offer[i].name);
    syi_free(p.offer);
    syi_free(p.excluded);
    return status;
}

void syi_init_plan_free(struct syi_init_plan *plan)
{
    syi_free(plan->param);
    syi_free(plan->used);
    *plan = (struct syi_init_plan){0};
}
