/* Classify rows of eight numbers with a package, in a program without Python.
 *
 *     ./main model.ctk [LIBTORCH_CPU_SO]
 *
 * Shows the entry points of the package with their inputs, and calls `forward` with two batches. */
#include <stdio.h>
#include <stdlib.h>

#include "ctk.h"

static void show(const ctk_entry* entry) {
    printf("%s\n", ctk_entry_name(entry));
    for (size_t i = 0; i < ctk_input_count(entry); ++i) {
        const ctk_info* input = ctk_input_info(entry, i);
        printf("  %s: type %d, sizes", input->name, input->dtype);
        for (int d = 0; d < input->rank; ++d) {
            const ctk_dim* dim = &input->dims[d];
            if (dim->expression == NULL) printf(" %lld", (long long)dim->size);
            else printf(" %s (%lld to %lld)", dim->expression, (long long)dim->min, (long long)dim->max);
        }
        printf("\n");
    }
}

static int classify(const ctk_entry* entry, int64_t rows, ctk_error* error) {
    float* numbers = malloc((size_t)rows * 8 * sizeof(float));
    if (numbers == NULL) return 1;
    for (int64_t i = 0; i < rows * 8; ++i) numbers[i] = (float)(i % 5) - 2;
    ctk_tensor input = ctk_tensor_of(numbers, CTK_FLOAT32, 2, (int64_t[]){rows, 8});
    ctk_tensor output;
    ctk_status status = ctk_run(entry, &input, 1, &output, 1, error);
    if (status == CTK_OK) {
        const float* likelihoods = output.data;
        for (int64_t row = 0; row < output.sizes[0]; ++row) {
            printf("row %lld:", (long long)row);
            for (int64_t i = 0; i < output.sizes[1]; ++i)
                printf(" %.4f", likelihoods[row * output.strides[0] + i * output.strides[1]]);
            printf("\n");
        }
        ctk_tensor_free(&output);
    }
    free(numbers);
    return (int)status;
}

int main(int count, char** arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: %s PACKAGE [LIBTORCH_CPU_SO]\n", arguments[0]);
        return 2;
    }
    ctk_error error;
    ctk_package* package =
        ctk_open_with_torch(arguments[1], count > 2 ? arguments[2] : NULL, &error);
    if (package == NULL) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (size_t i = 0; i < ctk_entry_count(package); ++i) show(ctk_entry_at(package, i));
    const ctk_entry* entry = ctk_entry_find(package, "forward");
    int status = classify(entry, 2, &error);
    if (status == CTK_OK) status = classify(entry, 3, &error);
    if (status != CTK_OK) fprintf(stderr, "%s\n", error.message);
    ctk_close(package);
    return status;
}
