/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a program: each is kept once, and found by its hash. */
#include "config.h"

#include <string.h>

#include "program/program.h"

const char *syi_program_name(const struct syi_program *program, uint32_t name)
{
    return program->names + (name < program->n_names ? name : 0);
}

static const char *entry_text(const void *owner, uint32_t id)
{
    const struct syi_program *program = owner;
    return program->names + program->name_entry[id].text;
}

static struct syi_name *find(const struct syi_program *program, const char *text)
{
    int64_t id = syi_index_find(&program->name_index, entry_text, program, text);
    return id < 0 ? NULL : &program->name_entry[id];
}

static int add(struct syi_program *program, const char *text, size_t bytes)
{
    struct sy_error err = {0};
    size_t id = program->name_index.n;
    if (program->n_names + bytes > UINT32_MAX) return SY_ENOMEM;
    int status = SYI_GROW(program->names, program->cap_names, program->n_names + bytes, &err);
    if (!status) status = SYI_GROW(program->name_entry, program->cap_entries, id + 1, &err);
    if (!status) status = syi_index_add(&program->name_index, text, (uint32_t)id, &err);
    if (status) return status;
    program->name_entry[id] = (struct syi_name){(uint32_t)program->n_names, -1};
    memcpy(program->names + program->n_names, text, bytes);
    program->n_names += bytes;
    return SY_OK;
}

/* The entry of a name, new if need be; NULL: the recording fails. */
static struct syi_name *entry_of(struct syi_program *program, const char *text)
{
    struct syi_name *there = find(program, text);
    if (there) return there;
    if (!add(program, text, strlen(text) + 1)) return &program->name_entry[program->name_index.n - 1];
    syi_program_fail(program, SY_ENOMEM, "out of memory for names");
    return NULL;
}

uint32_t syi_program_intern(struct syi_program *program, const char *text)
{
    if (!text || !*text) return 0;
    const struct syi_name *name = entry_of(program, text);
    return name ? name->text : 0;
}

int syi_program_find(const struct syi_program *program, const char *name)
{
    const struct syi_name *there = find(program, name);
    return there ? there->tensor : -1;
}

void syi_tensor_rename(struct syi_program *program, int tensor, const char *text)
{
    struct syi_name *name = *text ? entry_of(program, text) : NULL;
    if (!name) return;
    program->tensor[tensor].name = name->text;
    if (name->tensor < 0 || name->tensor > tensor) name->tensor = tensor;
}
