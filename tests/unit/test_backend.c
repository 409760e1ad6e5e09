/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins: every kind of wrong one is refused by one line with its path and without running its code, odd but
 * right ones work. The plugins are descriptors of tests/plugins/hostile.c, linked under their names into a
 * folder of the test. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"
#include "runtime/backend.h"

static char folder[64];

static void link_as(const char *name)
{
    char target[1024], path[128];
    snprintf(target, sizeof(target), "%s/hostile.so", getenv("SY_TEST_PLUGINS"));
    snprintf(path, sizeof(path), "%s/switchyard-%s.so", folder, name);
    cr_assert_eq(symlink(target, path), 0);
}

static void make_folder(void)
{
    const char *plugins = getenv("SY_TEST_PLUGINS");
    cr_assert(plugins != NULL, "SY_TEST_PLUGINS must name the folder of hostile.so");
    if (!*plugins) cr_skip_test("this build has no shared libraries, so no plugins");
    snprintf(folder, sizeof(folder), "/tmp/sy-plugins-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    setenv("SWITCHYARD_BACKEND_PATH", folder, 1);
}

static void remove_folder(void)
{
    char command[128];
    if (!folder[0]) return;
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(plugin, .init = make_folder, .fini = remove_folder);

/* ---- refused ---- */

#define WORD(number)   #number
#define NUMBER(number) WORD(number)
#define MINOR          NUMBER(SY_ABI_MINOR)
#define HOST_ABI       NUMBER(SY_ABI_MAJOR) "." MINOR

static void check_refused(const char *name, int code, const char *words)
{
    struct syi_backend *backend = NULL;
    struct sy_error err = {0};
    cr_expect_eq(syi_backend_open(name, NULL, NULL, &backend, &err), code, "%s", name);
    cr_expect_null(backend);
    cr_expect(strstr(err.text, words) != NULL, "%s: \"%s\" lacks \"%s\"", name, err.text, words);
    cr_expect(strstr(err.text, folder) != NULL, "%s: \"%s\" does not name the path", name, err.text);
    cr_expect(strchr(err.text, '\n') == NULL);
}

static const struct {
    const char *name, *words;
} refused[] = {
    {"magic", "is not a switchyard plugin (magic 464c457f"},
    {"major", "(ABI 7." MINOR ", this host " HOST_ABI ") speaks another major version"},
    {"minor", "(ABI 0.99, this host " HOST_ABI ") needs a newer host"},
    {"older", "(ABI 0.1, this host " HOST_ABI ") is from before calls and kernels changed"},
    {"layout", "structures of another size"},
    {"truncated", "descriptor that is too short"},
    {"renamed", "another name than its file"},
    {"nameless", "another name than its file"},
    {"nothing", "offers nothing"},
    {"kernelless", "announces kernels but has none"},
    {"nofunction", "kernel without function"},
    {"shorttable", "no collectives table, or one that is too short"},
    {"notable", "no collectives table, or one that is too short"},
    {"shortdevice", "no device table, or one that is too short"},
    {"elsewhere", "has no symbol sy_backend_elsewhere"},
};

Test(plugin, wrong_ones_are_refused)
{
    for (size_t i = 0; i < SYI_COUNT(refused); i++) {
        link_as(refused[i].name);
        check_refused(refused[i].name, SY_EBACKEND, refused[i].words);
    }
}

Test(plugin, not_a_library)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/switchyard-text.so", folder);
    cr_assert_eq(syi_file_write(path, "hello\n", 6, NULL), SY_OK);
    check_refused("text", SY_EBACKEND, "cannot be loaded (this host: ABI " HOST_ABI ")");
    snprintf(path, sizeof(path), "%s/switchyard-empty.so", folder);
    cr_assert_eq(syi_file_write(path, "", 0, NULL), SY_OK);
    check_refused("empty", SY_EBACKEND, "cannot be loaded");
}

static void check_loads(const char *name)
{
    struct syi_backend *backend = NULL;
    struct sy_error err = {0};
    cr_expect_eq(syi_backend_open(name, NULL, NULL, &backend, &err), SY_OK, "%s", err.text);
    syi_backend_close(backend);
}

/* Root does not run what others may have changed; others run what they may run anyway. */
Test(plugin, one_that_others_may_write)
{
    char from[1024], path[1024], *whole;
    size_t bytes;
    int is_root = geteuid() == 0;
    snprintf(from, sizeof(from), "%s/hostile.so", getenv("SY_TEST_PLUGINS"));
    cr_assert_eq(syi_file_read(from, &whole, &bytes, NULL), SY_OK);
    snprintf(path, sizeof(path), "%s/switchyard-good.so", folder);
    cr_assert_eq(syi_file_write(path, whole, bytes, NULL), SY_OK);
    syi_free(whole);
    cr_assert_eq(chmod(path, 0666), 0);
    if (is_root) check_refused("good", SY_EBACKEND, "everybody may write this file");
    if (!is_root) check_loads("good");
    cr_assert_eq(chmod(path, 0664), 0);
    check_loads("good"); /* of a group of root's, or of the user's own */
    if (is_root && !chown(path, 0, 1)) {
        check_refused("good", SY_EBACKEND, "its group, which is not root's, may write this file");
        cr_assert_eq(chmod(path, 0644), 0);
        check_loads("good");
        cr_assert_eq(chown(path, 1, 0), 0);
        check_refused("good", SY_EBACKEND, "root runs no file that is somebody else's");
        cr_assert_eq(chown(path, 0, 0), 0);
    }
    cr_assert_eq(chmod(folder, 0777), 0);
    if (is_root) check_refused("good", SY_EBACKEND, "everybody may write its folder");
    if (!is_root) check_loads("good");
    cr_assert_eq(chmod(folder, 01777), 0); /* as /tmp: nobody replaces another's file */
    check_loads("good");
}

/* A copy that broke off: whatever is missing, the loader is not given what it would map beyond the end. */
Test(plugin, one_that_is_cut_short_is_refused)
{
    char path[1024], *whole;
    size_t bytes, opened = 0;
    struct syi_backend *backend = NULL;
    snprintf(path, sizeof(path), "%s/hostile.so", getenv("SY_TEST_PLUGINS"));
    cr_assert_eq(syi_file_read(path, &whole, &bytes, NULL), SY_OK);
    snprintf(path, sizeof(path), "%s/switchyard-good.so", folder);
    for (size_t length = 0; length < bytes; length += length < 1024 ? 16 : 509) {
        struct sy_error err = {0};
        cr_assert_eq(syi_file_write(path, whole, length, NULL), SY_OK);
        int status = syi_backend_open("good", NULL, NULL, &backend, &err);
        if (status == SY_OK) { /* only section headers are missing, which nobody needs */
            opened = length;
            syi_backend_close(backend);
            break;
        }
        cr_expect_eq(status, SY_EBACKEND, "%zu bytes: %s", length, err.text);
        cr_expect(strstr(err.text, "cannot be loaded (this host: ABI " HOST_ABI "): ") != NULL, "%s",
                  err.text);
    }
    cr_expect(opened == 0 || opened > bytes / 4, "opened with %zu of %zu bytes", opened, bytes);
    syi_free(whole);
}

Test(plugin, one_of_another_machine_is_refused)
{
    char path[1024], *whole;
    size_t bytes;
    snprintf(path, sizeof(path), "%s/hostile.so", getenv("SY_TEST_PLUGINS"));
    cr_assert_eq(syi_file_read(path, &whole, &bytes, NULL), SY_OK);
    if (memcmp(whole, "\177ELF", 4) != 0) cr_skip_test("libraries here are no ELF files");
    whole[18] ^= 1; /* e_machine */
    snprintf(path, sizeof(path), "%s/switchyard-good.so", folder);
    cr_assert_eq(syi_file_write(path, whole, bytes, NULL), SY_OK);
    check_refused("good", SY_EBACKEND, "not a library of this kind of machine");
    syi_free(whole);
}

Test(plugin, not_there)
{
    check_refused("absent", SY_ENOENT, "no switchyard-absent.so in");
    check_refused("absent", SY_ENOENT,
                  "SWITCHYARD_BACKEND_PATH names these folders, and no others are searched");
}

Test(plugin, names_are_no_paths)
{
    static const char *const names[] = {"", "../x", "A", "a-b", "a/b", "."};
    struct syi_backend *backend = NULL;
    for (size_t i = 0; i < SYI_COUNT(names); i++)
        cr_expect_eq(syi_backend_open(names[i], NULL, NULL, &backend, NULL), SY_EINVAL, "%s", names[i]);
}

Test(plugin, relative_folders_are_refused)
{
    struct syi_backend *backend = NULL;
    struct sy_error err = {0};
    link_as("good");
    cr_assert_eq(chdir(folder), 0);
    setenv("SWITCHYARD_BACKEND_PATH", ".", 1);
    cr_expect_eq(syi_backend_open("good", NULL, NULL, &backend, &err), SY_EINVAL);
    cr_expect(strstr(err.text, "folder . is relative") != NULL, "%s", err.text);
    setenv("SWITCHYARD_BACKEND_PATH", ":", 1); /* empty entries do not mean the current folder */
    cr_expect_eq(syi_backend_open("good", NULL, NULL, &backend, NULL), SY_ENOENT);
    unsetenv("SWITCHYARD_BACKEND_PATH");
    cr_expect_eq(syi_backend_open("good", NULL, NULL, &backend, NULL), SY_ENOENT);
    cr_assert_eq(chdir("/"), 0);
}

/* ---- accepted ---- */

static struct syi_backend *open_plugin(const char *name, struct syi_threads *threads)
{
    struct syi_backend *backend = NULL;
    struct sy_error err = {0};
    link_as(name);
    cr_assert_eq(syi_backend_open(name, NULL, threads, &backend, &err), SY_OK, "%s", err.text);
    return backend;
}

static void keep_line(void *arg, enum sy_log_level level, const char *line)
{
    (void)level;
    strncat(arg, line, 400);
    strcat(arg, "\n");
}

Test(plugin, a_good_one_is_opened_and_its_kernels_chosen)
{
    char lines[2048] = "";
    sy_log_set(keep_line, lines);
    struct syi_backend *backend = open_plugin("good", NULL);
    sy_log_set(NULL, NULL);
    cr_expect(strstr(lines, "backend good: opened?and more") != NULL, "%s", lines);
    cr_expect_eq(strlen(backend->description), sizeof(backend->description) - 1);
    cr_expect_null(strchr(backend->description, '\n'));
    /* needs 4 is not there, needs 2 comes before plain */
    const struct sy_kernel *kernel = syi_backend_find(backend, SY_OP_MATMUL, SY_F32, SY_F32);
    cr_assert_not_null(kernel);
    cr_expect_str_eq(kernel->name, "second");
    cr_expect_null(syi_backend_find(backend, SY_OP_MATMUL, SY_BF16, SY_F32));
    cr_expect_null(syi_backend_find(backend, SY_OP_MATMUL, SY_F32, SY_F64));
    cr_expect_null(syi_backend_find(backend, SY_OP_ATTENTION, SY_F32, SY_F32));
    cr_expect_not_null(syi_backend_find(backend, SY_OP_ROUTE, SY_F32, SY_DTYPE_COUNT));
    cr_expect_not_null(syi_backend_find(backend, SY_OP_ROUTE, SY_DTYPE_COUNT, SY_F32));
    syi_backend_close(backend);
    syi_backend_close(NULL);
}

Test(plugin, its_words_reach_the_error)
{
    struct syi_backend *backend = open_plugin("good", NULL), *second = NULL;
    struct sy_call call = {.host = &backend->host};
    struct sy_error err = {0}, again = {0}, open = {0};
    int status = syi_backend_find(backend, SY_OP_MATMUL, SY_F32, SY_F32)->run(backend->context, &call);
    cr_expect_eq(syi_backend_error(backend, status, "matmul of layer 3", &err), SY_ENUMERIC);
    cr_expect_str_eq(err.text, "backend good: matmul of layer 3: the kernel gives up");
    syi_backend_error(backend, SY_EIO, "later", &again); /* reported once */
    cr_expect_str_eq(again.text, "backend good: later: input or output failed");
    struct sy_backend_option options[] = {{"fail", "yes"}, {NULL, NULL}};
    cr_expect_eq(syi_backend_open("good", options, NULL, &second, &open), SY_EBACKEND);
    cr_expect_str_eq(open.text, "backend good: cannot be opened: asked to fail");
    syi_backend_close(backend);
}

Test(plugin, a_later_minor_version_is_read_as_far_as_known)
{
    struct syi_backend *backend = open_plugin("grown", NULL);
    cr_expect_eq(backend->plugin.desc.abi_minor, SY_ABI_MINOR + 5);
    cr_expect_not_null(syi_backend_find(backend, SY_OP_MATMUL, SY_F32, SY_F32));
    syi_backend_close(backend);
}

Test(plugin, functions_left_out_say_so)
{
    struct syi_backend *backend = open_plugin("holes", NULL);
    const struct sy_device_table *device = backend->plugin.desc.device;
    const struct sy_collective_table *collectives = backend->plugin.desc.collectives;
    cr_expect_eq(device->alloc(NULL, 1, NULL), SY_EUNSUPPORTED);
    device->free(NULL, NULL);
    cr_expect_eq(device->copy(NULL, NULL, NULL, 1), SY_EUNSUPPORTED);
    cr_expect_eq(device->sync(NULL), SY_EUNSUPPORTED);
    cr_expect_eq(device->memory_info(NULL, NULL, NULL), SY_EUNSUPPORTED);
    cr_expect_eq(device->copy_async, device->copy);
    cr_expect_eq(device->zero(NULL, NULL, 1), SY_EUNSUPPORTED);
    cr_expect_eq(device->copy_rows(NULL, NULL, 1, NULL, 1, 1, 1), SY_EUNSUPPORTED);
    cr_expect_null(device->capture_begin, "without replay there are no graphs");
    cr_expect_eq(collectives->world(NULL, NULL, NULL), SY_EUNSUPPORTED);
    cr_expect_eq(collectives->group_new(NULL, NULL, 0, NULL), SY_EUNSUPPORTED);
    collectives->group_free(NULL, NULL);
    cr_expect_eq(collectives->start(NULL, NULL, NULL, NULL), SY_EUNSUPPORTED);
    cr_expect_eq(collectives->wait(NULL, NULL), SY_EUNSUPPORTED);
    cr_expect_eq(collectives->barrier(NULL), SY_EUNSUPPORTED);
    collectives->abort(NULL, "");
    cr_expect_null(syi_backend_find(backend, SY_OP_MATMUL, SY_F32, SY_F32));
    struct syi_comm comm;
    struct sy_error err = {0};
    cr_expect_eq(syi_backend_comm(backend, &comm, &err), SY_EUNSUPPORTED);
    syi_backend_close(backend);
    struct sy_error no_open = {0};
    link_as("closed");
    cr_expect_eq(syi_backend_open("closed", NULL, NULL, &backend, &no_open), SY_EUNSUPPORTED);
    cr_expect(strstr(no_open.text, "cannot be opened") != NULL, "%s", no_open.text);
}

Test(plugin, loading_does_not_change_the_floating_point_mode)
{
    char lines[2048] = "";
    struct syi_threads *pool = NULL;
    uint32_t control[3];
    cr_assert_eq(syi_threads_new(3, 1, &pool, NULL), SY_OK);
    sy_log_set(keep_line, lines);
    struct syi_backend *backend = open_plugin("good", pool);
    sy_log_set(NULL, NULL);
    syi_threads_fp_control(pool, control);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(control[i], SYI_FP_CONTROL_DEFAULT, "thread %d: %x", i, control[i]);
#if defined(__x86_64__)
    cr_expect(strstr(lines, "changed the floating-point mode") != NULL, "%s", lines);
#endif
    syi_backend_close(backend);
    syi_threads_free(pool);
}

static void add_thread(void *arg, int64_t task, int thread)
{
    ((int *)arg)[task] = thread + 1;
}

Test(plugin, the_host_runs_parallel_work)
{
    struct syi_threads *pool = NULL;
    int seen[10] = {0};
    cr_assert_eq(syi_threads_new(2, 1, &pool, NULL), SY_OK);
    struct syi_backend *backend = open_plugin("good", pool);
    cr_expect_eq(backend->host.threads, 2);
    backend->host.parallel_for(backend->host.arg, 10, add_thread, seen);
    for (int i = 0; i < 10; i++) cr_expect_eq(seen[i], i < 5 ? 1 : 2);
    syi_backend_close(backend);
    syi_threads_free(pool);
}

/* ---- list ---- */

struct listed {
    int n, refused, hidden, good;
};

static void note(void *arg, const struct syi_backend_info *info)
{
    struct listed *listed = arg;
    if (strcmp(info->path, "built in") == 0) return; /* linked ones come besides */
    listed->n++;
    listed->refused += info->refused != NULL;
    if (info->refused && strstr(info->refused, "hidden")) listed->hidden++;
    if (strcmp(info->name, "good") == 0 && !info->refused) {
        listed->good++;
        cr_expect_eq(info->score, 42);
        cr_expect_eq(strlen(info->text), 255);
        cr_expect_null(strchr(info->text, '\n'));
        cr_expect_str_eq(info->version, "1.2");
        cr_expect_str_eq(info->build, "tests");
        cr_expect(info->abi_major == SY_ABI_MAJOR && info->abi_minor == SY_ABI_MINOR);
        cr_expect_eq(info->n_kernels, 5);
        cr_expect(strstr(info->path, "/switchyard-good.so") != NULL);
    }
}

Test(plugin, list_shows_all_with_reasons)
{
    struct listed listed = {0};
    char path[512];
    for (size_t i = 0; i < SYI_COUNT(refused); i++) link_as(refused[i].name);
    link_as("good");
    link_as("closed");
    link_as("Upper");
    /* Another file of a known name, and the same folder by another path. */
    snprintf(path, sizeof(path), "%s/other", folder);
    cr_assert_eq(mkdir(path, 0777), 0);
    snprintf(path, sizeof(path), "%s/other/switchyard-good.so", folder);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof(path), "%s:%s/.:%s/other:%s/nowhere", folder, folder, folder, folder);
    setenv("SWITCHYARD_BACKEND_PATH", path, 1);
    cr_expect_eq(syi_backend_list(note, &listed, NULL), SY_OK);
    int files = (int)SYI_COUNT(refused) + 3;
    cr_expect_eq(listed.n, files + 2);
    cr_expect_eq(listed.hidden, 1);
    cr_expect_eq(listed.refused, files + 2 - 2); /* all but good and closed */
    cr_expect_eq(listed.good, 1);
}

/* ---- the backends of this tree (SWITCHYARD_BACKEND_PATH of `make check`, or linked) ---- */

static void check_variant(const char *variant)
{
    struct sy_backend_option options[] = {{"variant", variant}, {NULL, NULL}};
    struct syi_backend *backend = NULL;
    struct sy_error err = {0};
    int status = syi_backend_open("cpu", options, NULL, &backend, &err);
    if (status !=
        SY_OK) { /* not every machine has every variant, but each has portable, and says what it has */
        cr_expect_eq(status, SY_EINVAL, "%s: %s", variant, err.text);
        cr_expect_neq(strcmp(variant, "portable"), 0);
        cr_expect(strstr(err.text, "portable") != NULL && strstr(err.text, variant) != NULL, "%s", err.text);
        return;
    }
    cr_expect_str_eq(backend->description, variant);
    /* its own matmul, and the reference where nothing is faster */
    const struct sy_kernel *matmul = syi_backend_find(backend, SY_OP_MATMUL, SY_F32, SY_F32);
    const struct sy_kernel *count =
        syi_backend_find(backend, SY_OP_COUNT_SUM, SY_DTYPE_COUNT, SY_DTYPE_COUNT);
    cr_assert(matmul && count);
    cr_expect_str_eq(matmul->name, variant);
    cr_expect_str_eq(count->name, "portable");
    cr_expect_null(syi_backend_find(backend, SY_OP_MATMUL, SY_F64, SY_F64));
    syi_backend_close(backend);
}

Test(backend, cpu_variants)
{
    static const char *const variants[] = {"portable", "avx2", "avx512", "neon"};
    for (size_t i = 0; i < SYI_COUNT(variants); i++) check_variant(variants[i]);
    struct syi_backend *backend = NULL;
    cr_assert_eq(syi_backend_open("cpu", NULL, NULL, &backend, NULL), SY_OK);
    cr_expect_neq(strlen(backend->description), 0);
    syi_backend_close(backend);
}

Test(backend, cpu_options_that_do_not_exist)
{
    struct sy_backend_option value[] = {{"variant", "sse9"}, {NULL, NULL}},
                             key[] = {{"varant", "avx2"}, {NULL, NULL}};
    struct syi_backend *backend = NULL;
    struct sy_error err = {0}, unknown = {0};
    cr_expect_eq(syi_backend_open("cpu", value, NULL, &backend, &err), SY_EINVAL);
    cr_expect(strstr(err.text, "variant \"sse9\" is not possible here: this CPU and build have auto") != NULL,
              "%s", err.text);
    cr_expect_eq(syi_backend_open("cpu", key, NULL, &backend, &unknown), SY_EINVAL);
    cr_expect(strstr(unknown.text, "unknown option \"varant\"") != NULL, "%s", unknown.text);
}

/* Products and attention in bf16 alone; in C by name and option, never of itself. */
Test(backend, cpu_emulates_tiles_when_asked)
{
    struct sy_backend_option alone[] = {{"emulate", "true"}, {NULL, NULL}},
                             no_value[] = {{"variant", "amx_bf16"}, {"emulate", "yes"}, {NULL, NULL}},
                             both[] = {{"variant", "amx_bf16"}, {"emulate", "true"}, {NULL, NULL}};
    struct syi_backend *backend = NULL;
    struct sy_error err = {0}, unknown = {0}, why = {0};
    cr_expect_eq(syi_backend_open("cpu", alone, NULL, &backend, &err), SY_EINVAL);
    cr_expect(strstr(err.text, "option emulate is for variant amx_bf16 alone") != NULL, "%s", err.text);
    cr_expect_eq(syi_backend_open("cpu", no_value, NULL, &backend, &unknown), SY_EINVAL);
    cr_expect(strstr(unknown.text, "option emulate is true or false, not \"yes\"") != NULL, "%s",
              unknown.text);
    if (syi_backend_open("cpu", both, NULL, &backend, &why) != SY_OK) {
        cr_expect(strstr(why.text, "AVX512-BF16") || strstr(why.text, "no kernels of amx_bf16"), "%s",
                  why.text);
        cr_skip_test("%s", why.text);
    }
    cr_expect_str_eq(backend->description, "amx_bf16: emulated, slow");
    cr_expect_str_eq(syi_backend_find(backend, SY_OP_MATMUL, SY_BF16, SY_F32)->name, "amx_bf16, emulated");
    cr_expect_str_eq(syi_backend_find(backend, SY_OP_ATTENTION, SY_BF16, SY_BF16)->name,
                     "amx_bf16, emulated");
    cr_expect_str_eq(syi_backend_find(backend, SY_OP_ATTENTION_GRAD, SY_BF16, SY_BF16)->name,
                     "amx_bf16, emulated");
    cr_expect_str_eq(syi_backend_find(backend, SY_OP_MATMUL, SY_F32, SY_F32)->name, "avx512");
    syi_backend_close(backend);
    cr_assert_eq(syi_backend_open("cpu", NULL, NULL, &backend, NULL), SY_OK);
    cr_expect_null(strstr(backend->description, "emulated"));
    syi_backend_close(backend);
}

Test(backend, null_counts_kernels_and_collectives)
{
    char lines[2048] = "";
    struct sy_backend_option options[] = {{"rank", "5"}, {"ranks", "1024"}, {NULL, NULL}};
    struct syi_backend *backend = NULL;
    struct syi_comm comm;
    struct sy_error err = {0};
    int group = -1, ranks[] = {5, 6};
    void *request = NULL;
    cr_assert_eq(syi_backend_open("null", options, NULL, &backend, &err), SY_OK, "%s", err.text);
    struct sy_call call = {.host = &backend->host, .op = SY_OP_GLU};
    const struct sy_kernel *kernel = syi_backend_find(backend, SY_OP_GLU, SY_F32, SY_F32);
    cr_assert_not_null(kernel);
    for (int i = 0; i < 3; i++) cr_expect_eq(kernel->run(backend->context, &call), SY_OK);
    cr_expect_not_null(syi_backend_find(backend, SY_OP_SLICE, SY_F64, SY_F64));
    cr_assert_eq(syi_backend_comm(backend, &comm, &err), SY_OK, "%s", err.text);
    cr_expect(comm.rank == 5 && comm.ranks == 1024);
    struct sy_collective collective = {.send_outer = 1, .send_inner = 64, .kind = SY_COLLECTIVE_ALL_GATHER};
    cr_expect_eq(syi_comm_group_new(&comm, ranks, 2, &group, &err), SY_OK);
    cr_expect_eq(syi_comm_start(&comm, group, &collective, &request, &err), SY_OK);
    cr_expect_eq(syi_comm_wait(&comm, request, &err), SY_OK);
    cr_expect_eq(syi_comm_barrier(&comm, &err), SY_OK);
    syi_comm_close(&comm);
    sy_log_set(keep_line, lines);
    syi_backend_close(backend);
    sy_log_set(NULL, NULL);
    cr_expect(strstr(lines, "3 kernel calls, 1 collectives (64 bytes sent): glu 3") != NULL, "%s", lines);
}

Test(backend, null_options_that_make_no_sense)
{
    static const char *const bad[][2] = {
        {"rank", "1"}, {"ranks", "0"}, {"ranks", "x"}, {"rank", "-1"}, {"size", "2"}};
    for (size_t i = 0; i < SYI_COUNT(bad); i++) {
        struct sy_backend_option options[] = {{bad[i][0], bad[i][1]}, {NULL, NULL}};
        struct syi_backend *backend = NULL;
        cr_expect_eq(syi_backend_open("null", options, NULL, &backend, NULL), SY_EINVAL, "%s=%s", bad[i][0],
                     bad[i][1]);
    }
}
