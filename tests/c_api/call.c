/* Call an entry point of a package with tensors that stand in files.
 *
 *     call PACKAGE ENTRY TORCH CALLS THREADS < inputs
 *
 * TORCH is the path of libtorch_cpu.so, or `-`. Each line of the inputs is `weight NAME` or `input`,
 * then type, rank, sizes, strides, and the file of the elements with their number of bytes. Prints a
 * line for each output, `type rank sizes`, and writes its elements, dense, to output_N. What fails is
 * told as `error STATUS MESSAGE`, and the exit status is the status. How much memory was in use in the
 * middle of the calls and at their end stands on stderr, and how long the second half of the calls
 * took, in seconds each. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctk.h"

enum { MOST = 64 };

typedef struct job_t {
    const ctk_entry* entry;
    ctk_tensor* inputs;
    ctk_tensor* outputs;
    size_t input_count;
    int calls;
    ctk_error error;
} job_t;

static int told(const ctk_error* error) {
    printf("error %d %s\n", error->status, error->message);
    return (int)error->status;
}

static void* load(const char* path, size_t size) {
    char* bytes = malloc(size + 1);
    FILE* file = fopen(path, "rb");
    if (file == NULL || fread(bytes, 1, size, file) != size) abort();
    fclose(file);
    return bytes;
}

static int read_tensor(ctk_tensor* tensor) {
    char path[4096];
    size_t size;
    memset(tensor, 0, sizeof(*tensor));
    if (scanf("%d %d", &tensor->dtype, &tensor->rank) != 2) return 1;
    for (int i = 0; i < tensor->rank; ++i)
        if (scanf("%ld", &tensor->sizes[i]) != 1) return 1;
    for (int i = 0; i < tensor->rank; ++i)
        if (scanf("%ld", &tensor->strides[i]) != 1) return 1;
    if (scanf("%4095s %zu", path, &size) != 2) return 1;
    tensor->data = load(path, size);
    return 0;
}

static void store(const ctk_tensor* tensor, const char* data, int dim, FILE* file) {
    size_t item = ctk_dtype_size(tensor->dtype);
    if (dim == tensor->rank) {
        fwrite(data, item, 1, file);
        return;
    }
    for (int64_t i = 0; i < tensor->sizes[dim]; ++i)
        store(tensor, data + i * tensor->strides[dim] * (int64_t)item, dim + 1, file);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void* work(void* given) {
    job_t* job = given;
    double middle = 0;
    size_t count = ctk_output_count(job->entry);
    for (int call = 0; call < job->calls; ++call) {
        if (call > 0)
            for (size_t i = 0; i < count; ++i) ctk_tensor_free(&job->outputs[i]);
        if (ctk_run(job->entry, job->inputs, job->input_count, job->outputs, count, &job->error)) break;
        if (call == job->calls / 2 || call == job->calls - 1)
            fprintf(stderr, "memory %zu\n", mallinfo2().uordblks + mallinfo2().hblkhd);
        if (call == job->calls / 2) middle = now();
        if (call == job->calls - 1 && job->calls > 3)
            fprintf(stderr, "seconds %.9f\n", (now() - middle) / (job->calls - 1 - job->calls / 2));
    }
    return NULL;
}

int main(int count, char** arguments) {
    if (count != 6) return 100;
    ctk_error error;
    const char* torch = strcmp(arguments[3], "-") ? arguments[3] : NULL;
    ctk_package* package = ctk_open_with_torch(arguments[1], torch, &error);
    if (package == NULL) return told(&error);
    const ctk_entry* entry = ctk_entry_find(package, arguments[2]);
    if (entry == NULL) return 101;
    ctk_tensor inputs[MOST], weights[MOST];
    size_t input_count = 0, weight_count = 0;
    char what[512], name[512];
    while (scanf("%511s", what) == 1) {
        if (strcmp(what, "weight") == 0) {
            ctk_tensor* weight = &weights[weight_count++];
            if (scanf("%511s", name) != 1 || read_tensor(weight)) return 102;
            if (ctk_set_weight(package, name, weight, &error)) return told(&error);
        } else if (read_tensor(&inputs[input_count++])) return 103;
    }
    int threads = atoi(arguments[5]);
    job_t jobs[MOST];
    pthread_t handles[MOST];
    for (int i = 0; i < threads; ++i) {
        ctk_tensor* outputs = calloc(MOST, sizeof(*outputs));
        jobs[i] = (job_t){entry, inputs, outputs, input_count, atoi(arguments[4]), {CTK_OK, ""}};
        if (threads > 1) pthread_create(&handles[i], NULL, work, &jobs[i]);
        else work(&jobs[i]);
    }
    for (int i = 0; i < threads && threads > 1; ++i) pthread_join(handles[i], NULL);
    int status = 0;
    for (int i = 0; i < threads && !status; ++i)
        if (jobs[i].error.status) status = told(&jobs[i].error);
    size_t output_count = ctk_output_count(entry);
    for (int i = 0; i < threads && !status; ++i)
        for (size_t at = 0; at < output_count; ++at) {
            const ctk_tensor* output = &jobs[i].outputs[at];
            if (i == 0) {
                printf("%d %d", output->dtype, output->rank);
                for (int d = 0; d < output->rank; ++d) printf(" %ld", output->sizes[d]);
                printf("\n");
            }
            snprintf(name, sizeof(name), "output_%d_%zu", i, at);
            FILE* file = fopen(name, "wb");
            if (output->data != NULL) store(output, output->data, 0, file);
            fclose(file);
        }
    ctk_close(package); /* What outputs own outlives it. */
    for (int i = 0; i < threads; ++i) {
        for (size_t at = 0; at < output_count; ++at) ctk_tensor_free(&jobs[i].outputs[at]);
        free(jobs[i].outputs);
    }
    for (size_t i = 0; i < input_count; ++i) free(inputs[i].data);
    for (size_t i = 0; i < weight_count; ++i) free(weights[i].data);
    return status;
}
