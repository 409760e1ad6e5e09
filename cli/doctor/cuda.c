/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA GPUs: what the driver says, if there is one. What the CUDA backend says is in the line of the backends. */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"

/* Results and names are those of the driver API, of which nothing is needed to build. */
typedef int (*init_fn)(unsigned flags);
typedef int (*number_fn)(int *number);
typedef int (*error_fn)(int error, const char **text);

/* dlsym as a function: ISO C has no cast to one. */
#define FIND(type, variable, library, name)                                                                  \
    union {                                                                                                  \
        void *object;                                                                                        \
        type function;                                                                                       \
    } variable = {dlsym(library, name)}

/* Says what the driver has, or why it has nothing; 1: a device can be used. */
static int ask_driver(void *library, char *text, size_t bytes)
{
    int version = 0, devices = 0, error;
    const char *why = NULL;
    FIND(init_fn, init, library, "cuInit");
    FIND(number_fn, driver_version, library, "cuDriverGetVersion");
    FIND(number_fn, count, library, "cuDeviceGetCount");
    FIND(error_fn, explain, library, "cuGetErrorString");
    if (!init.object || !driver_version.object || !count.object || !explain.object) {
        snprintf(text, bytes, "a driver that is not CUDA's");
        return 0;
    }
    error = init.function(0);
    if (!error) error = driver_version.function(&version);
    if (!error) error = count.function(&devices);
    if (error) {
        explain.function(error, &why);
        snprintf(text, bytes, "a driver, but no device can be opened (%s)", why ? why : "no reason given");
        return 0;
    }
    snprintf(text, bytes, "a driver for CUDA %d.%d with %d device%s", version / 1000, version % 1000 / 10,
             devices, devices == 1 ? "" : "s");
    return devices > 0;
}

static const char *find_nvcc(char *path, size_t bytes)
{
    const char *folders = getenv("PATH");
    while (folders && *folders) {
        size_t length = strcspn(folders, ":");
        snprintf(path, bytes, "%.*s/nvcc", (int)length, folders);
        if (length && !access(path, X_OK)) return path;
        folders += length + (folders[length] == ':');
    }
    return "none in PATH";
}

void doctor_cuda(struct doctor *d)
{
    char found[256] = "no driver (libcuda.so.1)", nvcc[1024];
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int usable = library && ask_driver(library, found, sizeof found);
    doctor_add(d, DOCTOR_OK, "cuda", NULL, "%s; nvcc %s", found, find_nvcc(nvcc, sizeof nvcc));
    doctor_number(d, "usable", usable);
}
