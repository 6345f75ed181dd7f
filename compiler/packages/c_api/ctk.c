/* ctk.c: the runtime behind ctk.h. Plain C11 with libc and libdl.
 *
 *   1. errors            what went wrong, told once
 *   2. the file          mapped, checksum of all of it, its members
 *   3. the machine       its processor has what the code was compiled for
 *   4. torch             the few C functions that are needed, found by name
 *   5. values            memory with a count of its users; views; copies
 *   6. operators         arguments for torch's dispatcher, and its results
 *   7. packages          open, weights, close
 *   8. calls             inputs checked against the description, then run
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define CTK_PACKAGE_ABI
#include "ctk.h"

#ifndef __linux__
#error "ctk.c is for Linux"
#endif

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY_MEMBER "c/package.so"
#define ALIGNMENT 64

/* ---------------------------------------------------------------- 1. errors */

static ctk_status vfail(ctk_error* error, ctk_status status, const char* format, va_list arguments) {
    if (error != NULL) {
        error->status = status;
        vsnprintf(error->message, sizeof(error->message), format, arguments);
    }
    return status;
}

static ctk_status __attribute__((format(printf, 3, 4)))
fail(ctk_error* error, ctk_status status, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfail(error, status, format, arguments);
    va_end(arguments);
    return status;
}

static void succeed(ctk_error* error) {
    if (error != NULL) {
        error->status = CTK_OK;
        error->message[0] = 0;
    }
}

/* ---------------------------------------------------------------- 2. the file */

typedef struct file_t {
    uint8_t* bytes;
    size_t size;
    size_t directory; /* Where the zip's central directory begins. */
    size_t entries;
} file_t;

static uint64_t little(const uint8_t* bytes, int count) {
    uint64_t value = 0;
    for (int i = count; i-- > 0;) value = value << 8 | bytes[i];
    return value;
}

/* Eight bytes a step: eight tables, each the one before moved by a byte. */
static uint32_t crc32_of(const uint8_t* bytes, size_t size) {
    uint32_t tables[8][256];
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (0xEDB88320u & (0u - (value & 1)));
        tables[0][i] = value;
    }
    for (int table = 1; table < 8; ++table)
        for (uint32_t i = 0; i < 256; ++i) {
            uint32_t before = tables[table - 1][i];
            tables[table][i] = (before >> 8) ^ tables[0][before & 255];
        }
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; bytes += 8, size -= 8) {
        uint32_t low = (uint32_t)little(bytes, 4) ^ crc, high = (uint32_t)little(bytes + 4, 4);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
              tables[4][low >> 24] ^ tables[3][high & 255] ^ tables[2][high >> 8 & 255] ^
              tables[1][high >> 16 & 255] ^ tables[0][high >> 24];
    }
    for (; size > 0; ++bytes, --size) crc = (crc >> 8) ^ tables[0][(crc ^ *bytes) & 255];
    return ~crc;
}

static ctk_status map_file(const char* path, file_t* file, ctk_error* error) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return fail(error, CTK_ERROR_FILE, "%s: %s", path, strerror(errno));
    struct stat status;
    void* bytes = MAP_FAILED;
    int reason = 0;
    if (fstat(descriptor, &status) != 0) reason = errno;
    else if (!S_ISREG(status.st_mode)) reason = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    else if (status.st_size == 0) reason = ENODATA;
    else {
        /* Private: a graph that writes to a weight changes no file. */
        bytes = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
        if (bytes == MAP_FAILED) reason = errno;
    }
    close(descriptor);
    if (reason == ENODATA)
        return fail(error, CTK_ERROR_CORRUPT, "%s is empty: copy or compile the package again", path);
    if (reason) return fail(error, CTK_ERROR_FILE, "%s cannot be read: %s", path, strerror(reason));
    file->bytes = bytes;
    file->size = (size_t)status.st_size;
    return CTK_OK;
}

/* Where the record at the end of the zip begins; 0 if there is none. Its comment ends the file. */
static size_t find_end(const file_t* file) {
    size_t longest = 22 + 65535;
    for (size_t back = 22; back <= file->size && back <= longest; ++back) {
        const uint8_t* at = file->bytes + file->size - back;
        if (little(at, 4) == 0x06054B50u && little(at + 20, 2) == back - 22)
            return file->size - back;
    }
    return 0;
}

static ctk_status check_file(const char* path, file_t* file, ctk_error* error) {
    size_t end = find_end(file);
    char comment[512] = "";
    if (end != 0 && file->size - end - 22 < sizeof(comment))
        memcpy(comment, file->bytes + end + 22, file->size - end - 22);
    int format = 0, used = 0;
    char sha[65], crc[9];
    if (end == 0 || sscanf(comment, "ctk-package %d", &format) != 1)
        return fail(error, CTK_ERROR_CORRUPT,
                    "%s is no package of ctk, or its end is missing: copy or compile it again", path);
    if (format != 1)
        return fail(error, CTK_ERROR_VERSION,
                    "%s has the package format %d, and this ctk.c reads format 1: use the ctk.c of the "
                    "ctk that made it, or compile the package with this one", path, format);
    int found = sscanf(comment, "ctk-package 1 sha256=%64[0-9a-f] crc32=%8[0-9a-f]%n", sha, crc, &used);
    uint32_t written = found == 2 ? (uint32_t)strtoul(crc, NULL, 16) : 0;
    size_t sealed = file->size - strlen("crc32=") - 8; /* all but the checksum itself */
    if (found != 2 || strlen(crc) != 8 || strlen(sha) != 64 || comment[used] != 0 ||
        end + 22 + (size_t)used != file->size || crc32_of(file->bytes, sealed) != written)
        return fail(error, CTK_ERROR_CORRUPT,
                    "%s is not as it was written (its checksum differs): copy or compile it again", path);
    file->entries = little(file->bytes + end + 10, 2);
    file->directory = little(file->bytes + end + 16, 4);
    if (end >= 20 && little(file->bytes + end - 20, 4) == 0x07064B50u) { /* zip64 */
        size_t other = little(file->bytes + end - 12, 8);
        if (other > file->size - 56) other = 0;
        file->entries = little(file->bytes + other + 32, 8);
        file->directory = little(file->bytes + other + 48, 8);
    }
    return CTK_OK;
}

/* The 64-bit number of a zip64 field: they stand in this order, those only that do not fit. */
static size_t wide(const uint8_t* entry, int number) {
    static const int at[] = {24, 20, 42}; /* size, stored size, offset */
    const uint8_t* extra = entry + 46 + little(entry + 28, 2);
    const uint8_t* end = extra + little(entry + 30, 2);
    size_t plain = little(entry + at[number], 4);
    if (plain != 0xFFFFFFFFu) return plain;
    int before = 0;
    for (int i = 0; i < number; ++i) before += little(entry + at[i], 4) == 0xFFFFFFFFu;
    for (; extra + 4 <= end; extra += 4 + little(extra + 2, 2))
        if (little(extra, 2) == 1) return little(extra + 4 + 8 * before, 8);
    return plain;
}

/* The checksum is that of the whole file, so what stands here was written by ctk. */
static uint8_t* member(const file_t* file, const char* name, size_t* size) {
    const uint8_t* entry = file->bytes + file->directory;
    size_t length = strlen(name);
    for (size_t i = 0; i < file->entries; ++i) {
        if (little(entry, 4) != 0x02014B50u) return NULL;
        size_t name_length = little(entry + 28, 2);
        if (name_length == length && memcmp(entry + 46, name, length) == 0) {
            if (little(entry + 10, 2) != 0) return NULL; /* compressed */
            size_t header = wide(entry, 2);
            *size = wide(entry, 0);
            const uint8_t* local = file->bytes + header;
            size_t begin = header + 30 + little(local + 26, 2) + little(local + 28, 2);
            return begin + *size <= file->size ? file->bytes + begin : NULL;
        }
        entry += 46 + name_length + little(entry + 30, 2) + little(entry + 32, 2);
    }
    return NULL;
}

/* ---------------------------------------------------------------- 3. the machine */

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#define FLAGS_LINE "flags"
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#define FLAGS_LINE "Features"
#else
#define MACHINE EM_NONE
#define FLAGS_LINE "flags"
#endif

static ctk_status check_elf(
    const char* path, const uint8_t* bytes, size_t size, ctk_error* error) {
    Elf64_Ehdr header;
    if (size < sizeof(header) || memcmp(bytes, ELFMAG, SELFMAG) != 0)
        return fail(error, CTK_ERROR_MACHINE,
                    "%s holds no library for Linux: compile the package on Linux", path);
    memcpy(&header, bytes, sizeof(header));
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != MACHINE)
        return fail(error, CTK_ERROR_MACHINE,
                    "%s was compiled for another kind of processor (ELF machine %d; this is %d): "
                    "compile the package on this machine", path, header.e_machine, MACHINE);
    return CTK_OK;
}

/* The words of the first line of /proc/cpuinfo that begins so, with a space on both sides. */
static char* processor_features(void) {
    FILE* stream = fopen("/proc/cpuinfo", "re");
    if (stream == NULL) return NULL;
    char* line = NULL;
    size_t room = 0;
    ssize_t length;
    while ((length = getline(&line, &room, stream)) > 0) {
        char* words = strchr(line, ':');
        if (strncmp(line, FLAGS_LINE, strlen(FLAGS_LINE)) != 0 || words == NULL) continue;
        *words = ' ';
        line[length - 1] = ' ';
        memmove(line, words, strlen(words) + 1);
        fclose(stream);
        return line;
    }
    fclose(stream);
    free(line);
    return NULL;
}

static ctk_status check_features(const char* path, const char* needed, ctk_error* error) {
    if (needed == NULL || *needed == 0) return CTK_OK;
    char* have = processor_features();
    if (have == NULL)
        return fail(error, CTK_ERROR_MACHINE,
                    "%s needs a processor with certain features, and /proc/cpuinfo does not tell "
                    "which this one has: mount /proc", path);
    char missing[256] = "";
    for (const char* word = needed; *word;) {
        size_t length = strcspn(word, " ");
        char padded[64];
        snprintf(padded, sizeof(padded), " %.*s ", (int)length, word);
        if (strstr(have, padded) == NULL && strlen(missing) + length + 2 < sizeof(missing)) {
            padded[length + 1] = 0;
            strcat(missing, padded);
        }
        word += length + (word[length] == ' ');
    }
    free(have);
    if (missing[0] == 0) return CTK_OK;
    return fail(error, CTK_ERROR_MACHINE,
                "%s was compiled for a processor with%s, which this one has not: compile the package "
                "on this machine", path, missing);
}

/* ---------------------------------------------------------------- 4. torch */

/* In C, torch's C functions are known by name only: its headers are C++. A `handle` is an owning
 * reference to a tensor, an `ivalue` is an argument or a result in 64 bits. */
typedef uint64_t ivalue;

/* FUNCTION(field, name in torch, whether every torch has it, type of the result, arguments) */
#define TORCH_FUNCTIONS(FUNCTION) \
    FUNCTION(call, "torch_call_dispatcher", 1, int32_t, (const char*, const char*, ivalue*, uint64_t)) \
    FUNCTION(new_list, "torch_new_list_reserve_size", 1, int32_t, (size_t, void**)) \
    FUNCTION(push, "torch_list_push_back", 1, int32_t, (void*, ivalue)) \
    FUNCTION(list_size, "torch_list_size", 1, int32_t, (void*, size_t*)) \
    FUNCTION(list_item, "torch_list_get_item", 1, int32_t, (void*, size_t, ivalue*)) \
    FUNCTION(delete_list, "torch_delete_list", 1, int32_t, (void*)) \
    FUNCTION(new_string, "torch_new_string_handle", 1, int32_t, (const char*, size_t, void**)) \
    FUNCTION(delete_string, "torch_delete_string", 1, int32_t, (void*)) \
    /* Since 2.13; before, the next two, which C++ `new` and `delete` call. */ \
    FUNCTION(new_box, "torch_new_stable_ivalue", 0, int32_t, (ivalue**)) \
    FUNCTION(delete_box, "torch_delete_stable_ivalue", 0, int32_t, (ivalue*)) \
    FUNCTION(cpp_new, "_Znwm", 1, void*, (size_t)) \
    FUNCTION(cpp_delete, "_ZdlPv", 1, void, (void*)) \
    /* Since 2.13; before, torch writes it to stderr. */ \
    FUNCTION(what, "torch_exception_get_what_without_backtrace", 0, const char*, (void)) \
    FUNCTION(from_memory, "torch_from_blob", 1, int32_t, \
             (void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t, \
              void**, int32_t, const uint8_t*, int64_t, void (*)(void*, void*), void*)) \
    FUNCTION(new_handle, "aoti_torch_new_tensor_handle", 1, int32_t, (void*, void**)) \
    FUNCTION(delete_handle, "aoti_torch_delete_tensor_object", 1, int32_t, (void*)) \
    FUNCTION(is_defined, "aoti_torch_is_defined", 1, int32_t, (void*, _Bool*)) \
    FUNCTION(data, "aoti_torch_get_data_ptr", 1, int32_t, (void*, void**)) \
    FUNCTION(rank, "aoti_torch_get_dim", 1, int32_t, (void*, int64_t*)) \
    FUNCTION(sizes, "aoti_torch_get_sizes", 1, int32_t, (void*, int64_t**)) \
    FUNCTION(strides, "aoti_torch_get_strides", 1, int32_t, (void*, int64_t**)) \
    FUNCTION(dtype, "aoti_torch_get_dtype", 1, int32_t, (void*, int32_t*)) \
    FUNCTION(device, "aoti_torch_get_device_type", 1, int32_t, (void*, int32_t*)) \
    FUNCTION(layout, "aoti_torch_get_layout", 1, int32_t, (void*, int32_t*)) \
    FUNCTION(copy, "aoti_torch_copy_", 1, int32_t, (void*, void*, int32_t)) \
    FUNCTION(grad_mode, "aoti_torch_grad_mode_is_enabled", 1, _Bool, (void)) \
    FUNCTION(set_grad_mode, "aoti_torch_grad_mode_set_enabled", 1, void, (_Bool))

typedef struct torch_t {
    void* library;
    char version[32];
    uint64_t abi;
#define FIELD(field, name, needed, result, arguments) result (*field) arguments;
    TORCH_FUNCTIONS(FIELD)
} torch_t;

static const char* find_functions(torch_t* torch) {
#define ROW(field, name, needed, result, arguments) {&torch->field, name, needed},
    const struct { void* to; const char* name; int needed; } functions[] = {TORCH_FUNCTIONS(ROW)};
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); ++i) {
        void* found = dlsym(torch->library, functions[i].name);
        if (found == NULL && functions[i].needed) return functions[i].name;
        memcpy(functions[i].to, &found, sizeof(found));
    }
    return NULL;
}

/* Global, as `import torch` has it: libraries of operators that a program loads look there. */
static ctk_status open_torch(torch_t* torch, const char* library, ctk_error* error) {
    if (torch->library != NULL) return CTK_OK;
    const char* name = library != NULL ? library : "libtorch_cpu.so";
    torch->library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (torch->library == NULL)
        return fail(error, CTK_ERROR_LIBRARY,
                    "the package calls operators of torch, and its library cannot be loaded: %s; put "
                    "the folder of libtorch_cpu.so into LD_LIBRARY_PATH, or give its path to "
                    "ctk_open_with_torch", dlerror());
    const char* missing = find_functions(torch);
    uint64_t (*version)(void) = NULL;
    void* found = dlsym(torch->library, "aoti_torch_abi_version");
    memcpy(&version, &found, sizeof(found));
    if (version == NULL || missing != NULL)
        return fail(error, CTK_ERROR_VERSION,
                    "%s has no function %s: it is a torch before 2.11; use that of the package", name,
                    missing != NULL ? missing : "aoti_torch_abi_version");
    torch->abi = version();
    snprintf(torch->version, sizeof(torch->version), "%d.%d.%d", (int)(torch->abi >> 56),
             (int)(torch->abi >> 48 & 255), (int)(torch->abi >> 40 & 255));
    return CTK_OK;
}

/* ---------------------------------------------------------------- 5. values */

/* Memory that values share: from `malloc`, or a tensor of torch. */
typedef struct ctk_storage {
    atomic_size_t users;
    void* handle;
    int32_t (*delete_handle)(void*);
    void* memory;
} ctk_storage;

/* Each call has one of these. The library sees its first field. */
typedef struct context_t {
    ctk_call call;
    const torch_t* torch;
    ctk_error* error;
    ctk_status status;
} context_t;

static context_t* context_of(ctk_call* call) { return (context_t*)(void*)call; }

static int host_fail(ctk_call* call, int32_t status, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    context_of(call)->status = vfail(context_of(call)->error, (ctk_status)status, format, arguments);
    va_end(arguments);
    return 1;
}

static void release_storage(ctk_storage* storage) {
    if (storage == NULL || atomic_fetch_sub(&storage->users, 1) != 1) return;
    if (storage->handle != NULL) storage->delete_handle(storage->handle);
    free(storage->memory);
    free(storage);
}

static void retain(ctk_storage* storage) {
    if (storage != NULL) atomic_fetch_add(&storage->users, 1);
}

static ctk_storage* new_storage(void) {
    ctk_storage* storage = calloc(1, sizeof(*storage));
    if (storage != NULL) atomic_init(&storage->users, 1);
    return storage;
}

static void host_drop(ctk_value* value) {
    ctk_storage* owner = value->tensor.owner;
    memset(value, 0, sizeof(*value));
    release_storage(owner);
}

/* `out` may be `value` itself, or hold something: a name that is given again. */
static void host_share(ctk_value* out, const ctk_value* value) {
    ctk_value copy = *value;
    retain(copy.tensor.owner);
    host_drop(out);
    *out = copy;
}

static const struct { const char* name; size_t size; } TYPES[] = {
    [CTK_UINT8] = {"uint8", 1}, [CTK_INT8] = {"int8", 1}, [CTK_INT16] = {"int16", 2},
    [CTK_INT32] = {"int32", 4}, [CTK_INT64] = {"int64", 8}, [CTK_FLOAT16] = {"float16", 2},
    [CTK_FLOAT32] = {"float32", 4}, [CTK_FLOAT64] = {"float64", 8}, [CTK_BOOL] = {"bool", 1},
    [CTK_BFLOAT16] = {"bfloat16", 2}, [CTK_UINT16] = {"uint16", 2}, [CTK_UINT32] = {"uint32", 4},
    [CTK_UINT64] = {"uint64", 8},
    [8] = {"complex32", 0}, [9] = {"complex64", 0}, [10] = {"complex128", 0}, /* not in ctk.h */
};

static int is_named(int32_t dtype) {
    return dtype >= 0 && (size_t)dtype < sizeof(TYPES) / sizeof(TYPES[0]) && TYPES[dtype].name;
}

size_t ctk_dtype_size(int32_t dtype) { return is_named(dtype) ? TYPES[dtype].size : 0; }

static const char* dtype_name(int32_t dtype) {
    return is_named(dtype) ? TYPES[dtype].name : "an unknown type";
}

/* How many elements from the first to the last; -1: more than there can be. */
static int64_t extent(int32_t rank, const int64_t* sizes, const int64_t* strides) {
    int64_t last = 0;
    for (int32_t i = 0; i < rank; ++i)
        if (sizes[i] == 0) return 0;
    for (int32_t i = 0; i < rank; ++i) {
        int64_t part;
        if (sizes[i] < 0 || strides[i] < 0 || __builtin_mul_overflow(sizes[i] - 1, strides[i], &part) ||
            __builtin_add_overflow(last, part, &last))
            return -1;
    }
    return last == INT64_MAX ? -1 : last + 1;
}

static void set_shape(
    ctk_tensor* tensor, int32_t dtype, int32_t rank, const int64_t* sizes, const int64_t* strides) {
    tensor->dtype = dtype;
    tensor->rank = rank;
    if (rank > 0) {
        memcpy(tensor->sizes, sizes, (size_t)rank * sizeof(int64_t));
        memcpy(tensor->strides, strides, (size_t)rank * sizeof(int64_t));
    }
}

static int host_empty(ctk_call* call, ctk_value* out, int32_t dtype, int32_t rank,
                      const int64_t* sizes, const int64_t* strides) {
    int64_t elements = extent(rank, sizes, strides), nbytes;
    if (elements < 0 || __builtin_mul_overflow(elements, (int64_t)ctk_dtype_size(dtype), &nbytes) ||
        nbytes > INT64_MAX - ALIGNMENT)
        return host_fail(call, CTK_ERROR_MEMORY, "a tensor of the graph is larger than memory can be");
    ctk_storage* storage = new_storage();
    size_t rounded = ((size_t)nbytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    if (storage == NULL || (storage->memory = aligned_alloc(ALIGNMENT, rounded)) == NULL) {
        free(storage);
        return host_fail(call, CTK_ERROR_MEMORY, "there is no memory for %lld bytes", (long long)nbytes);
    }
    host_drop(out);
    set_shape(&out->tensor, dtype, rank, sizes, strides);
    out->tensor.data = storage->memory;
    out->tensor.owner = storage;
    return 0;
}

static int host_view(ctk_call* call, ctk_value* out, const ctk_value* base, int32_t dtype,
                     int32_t rank, const int64_t* sizes, const int64_t* strides, int64_t offset) {
    (void)call;
    ctk_value view = {.tensor = base->tensor};
    set_shape(&view.tensor, dtype, rank, sizes, strides);
    if (base->tensor.data != NULL)
        view.tensor.data = (char*)base->tensor.data + offset * (int64_t)ctk_dtype_size(dtype);
    retain(view.tensor.owner);
    host_drop(out);
    *out = view;
    return 0;
}

static int has_size(const ctk_tensor* tensor, int32_t rank, const int64_t* sizes) {
    return tensor->rank == rank &&
           (rank == 0 || memcmp(tensor->sizes, sizes, (size_t)rank * sizeof(int64_t)) == 0);
}

/* Strides of dimensions of one element do not matter, and none do where there is no element. */
static int fits(const ctk_tensor* tensor, int32_t rank, const int64_t* sizes, const int64_t* strides) {
    if (!has_size(tensor, rank, sizes)) return 0;
    for (int32_t i = 0; i < rank; ++i)
        if (sizes[i] == 0) return 1;
    for (int32_t i = 0; i < rank; ++i)
        if (sizes[i] != 1 && tensor->strides[i] != strides[i]) return 0;
    return 1;
}

static void copy_elements(char* to, const int64_t* to_strides, const char* from,
                          const int64_t* from_strides, const int64_t* sizes, int32_t rank,
                          size_t item) {
    if (rank == 0) {
        memcpy(to, from, item);
        return;
    }
    int64_t step = to_strides[0] * (int64_t)item, from_step = from_strides[0] * (int64_t)item;
    if (rank == 1 && to_strides[0] == 1 && from_strides[0] == 1) {
        memcpy(to, from, (size_t)sizes[0] * item);
        return;
    }
    for (int64_t i = 0; i < sizes[0]; ++i)
        copy_elements(to + i * step, to_strides + 1, from + i * from_step, from_strides + 1, sizes + 1,
                      rank - 1, item);
}

static void* handle_of(ctk_call* call, const ctk_value* value);

static int host_copy(ctk_call* call, const ctk_value* to, const ctk_value* from) {
    const ctk_tensor *a = &to->tensor, *b = &from->tensor;
    if (!has_size(a, b->rank, b->sizes))
        return host_fail(call, CTK_ERROR_OPERATOR, "a tensor of the graph has not the size that it was "
                         "compiled for: compile the package again");
    if (extent(a->rank, a->sizes, a->strides) == 0 || (a->data == b->data && a->dtype == b->dtype))
        return 0;
    if (a->dtype == b->dtype) {
        copy_elements(a->data, a->strides, b->data, b->strides, a->sizes, a->rank,
                      ctk_dtype_size(a->dtype));
        return 0;
    }
    const torch_t* torch = context_of(call)->torch; /* Only it gives values of another type. */
    if (torch == NULL)
        return host_fail(call, CTK_ERROR_OPERATOR, "a tensor of the graph has not the type that it was "
                         "compiled for: compile the package again");
    void *left = handle_of(call, to), *right = left == NULL ? NULL : handle_of(call, from);
    int32_t failed = right == NULL || torch->copy(left, right, 0);
    if (left != NULL) torch->delete_handle(left);
    if (right != NULL) torch->delete_handle(right);
    if (failed && right != NULL) call->host->refused(call, "aten::copy_");
    return failed != 0;
}

static int host_fit(ctk_call* call, ctk_value* out, const ctk_value* value, int32_t dtype,
                    int32_t rank, const int64_t* sizes, const int64_t* strides) {
    if (value->tensor.dtype == dtype && fits(&value->tensor, rank, sizes, strides)) {
        host_share(out, value);
        return 0;
    }
    ctk_value made = {{0}, NULL};
    if (!has_size(&value->tensor, rank, sizes))
        return host_fail(call, CTK_ERROR_OPERATOR, "a tensor of the graph has not the size that it was "
                         "compiled for: compile the package again");
    if (host_empty(call, &made, dtype, rank, sizes, strides)) return 1;
    if (host_copy(call, &made, value)) {
        host_drop(&made);
        return 1;
    }
    host_drop(out);
    *out = made;
    return 0;
}

static int host_require(ctk_call* call, ctk_value* out, const ctk_value* value, int32_t dtype,
                        int32_t rank, const int64_t* sizes, const int64_t* strides, const char* name) {
    if (value->tensor.dtype != dtype || !fits(&value->tensor, rank, sizes, strides))
        return host_fail(call, CTK_ERROR_ARGUMENT, "the graph writes to %s, and was compiled for other "
                         "strides of it: give it a tensor with the strides of the example input, or "
                         "compile the package for these", name);
    host_share(out, value);
    return 0;
}

/* ---------------------------------------------------------------- 6. operators */

static void release_lent(void* data, void* owner) {
    (void)data;
    release_storage(owner);
}

/* A new handle: of the tensor itself, or of its memory, which it keeps alive. */
static void* handle_of(ctk_call* call, const ctk_value* value) {
    const torch_t* torch = context_of(call)->torch;
    const ctk_tensor* tensor = &value->tensor;
    void* handle = NULL;
    static int64_t nothing;
    if (value->handle != NULL) {
        if (torch->new_handle(value->handle, &handle)) call->host->refused(call, "a tensor");
        return handle;
    }
    void* data = tensor->data != NULL ? tensor->data : &nothing; /* of no elements */
    retain(tensor->owner);
    if (torch->from_memory(data, tensor->rank, tensor->sizes, tensor->strides, 0, tensor->dtype, 0, -1,
                           &handle, 0, NULL, 0, tensor->owner != NULL ? release_lent : NULL,
                           tensor->owner)) {
        release_storage(tensor->owner);
        call->host->refused(call, "a tensor");
        return NULL;
    }
    return handle;
}

static void* host_handle(ctk_call* call, const ctk_value* value, void** temporary) {
    *temporary = NULL;
    if (value->handle != NULL) return value->handle;
    return *temporary = handle_of(call, value);
}

static void* host_function(ctk_call* call, const char* name) {
    void* found = dlsym(context_of(call)->torch->library, name);
    if (found == NULL)
        host_fail(call, CTK_ERROR_LIBRARY, "this torch has no function %s: use that of the package", name);
    return found;
}

static int host_release(ctk_call* call, void* temporary) {
    if (temporary != NULL) context_of(call)->torch->delete_handle(temporary);
    return 0;
}

static int host_refused(ctk_call* call, const char* name) {
    const torch_t* torch = context_of(call)->torch;
    const char* what = torch->what != NULL ? torch->what() : "torch wrote the reason to stderr";
    return host_fail(call, CTK_ERROR_OPERATOR, "%s failed: %s", name, what);
}

/* Take a handle that torch gave: dense, on the CPU, of a type and rank that we know. */
static int host_adopt(ctk_call* call, ctk_value* out, void* handle) {
    const torch_t* torch = context_of(call)->torch;
    int64_t rank = 0, *sizes = NULL, *strides = NULL;
    int32_t dtype = -1, device = -1, layout = -1;
    void* data = NULL;
    ctk_value value = {{0}, NULL};
    _Bool is_defined = 1;
    if (torch->is_defined(handle, &is_defined) == 0 && !is_defined) { /* a result that nobody asked for */
        torch->delete_handle(handle);
        host_drop(out);
        return 0;
    }
    int failed = torch->rank(handle, &rank) || torch->dtype(handle, &dtype) ||
                 torch->device(handle, &device) || torch->layout(handle, &layout);
    int known = !failed && rank <= CTK_MAX_RANK && ctk_dtype_size(dtype) && device == 0 && layout == 0;
    failed = !known || torch->sizes(handle, &sizes) || torch->strides(handle, &strides) ||
             torch->data(handle, &data);
    ctk_storage* storage = failed ? NULL : new_storage();
    if (storage == NULL) {
        torch->delete_handle(handle);
        if (known) return host_fail(call, CTK_ERROR_MEMORY, "there is no memory for a tensor");
        return host_fail(call, CTK_ERROR_UNSUPPORTED,
                         "an operator of torch gave a tensor that ctk.h does not have (%s, %lld "
                         "dimensions, device type %d, layout %d): load the package with ctk.load",
                         dtype_name(dtype), (long long)rank, device, layout);
    }
    storage->handle = handle;
    storage->delete_handle = torch->delete_handle;
    set_shape(&value.tensor, dtype, (int32_t)rank, sizes, strides);
    value.tensor.data = data;
    value.tensor.owner = storage;
    value.handle = handle;
    host_drop(out);
    *out = value;
    return 0;
}

/* Look again at a value whose tensor torch has resized. */
static int host_refresh(ctk_call* call, ctk_value* value) {
    void* handle = NULL;
    if (context_of(call)->torch->new_handle(value->handle, &handle)) return host_refused(call, "a tensor");
    return host_adopt(call, value, handle);
}

static int argument(ctk_call* call, const ctk_arg* arg, ivalue* out);

/* Free an argument that no call will take. */
static void forget(const torch_t* torch, const ctk_arg* arg, ivalue value) {
    if (arg->kind == CTK_ARG_NONE) return;
    if (arg->is_optional) {
        ivalue* box = (ivalue*)(uintptr_t)value;
        value = *box;
        if (torch->delete_box != NULL) torch->delete_box(box);
        else torch->cpp_delete(box);
    }
    void* pointer = (void*)(uintptr_t)value;
    if (arg->kind == CTK_ARG_TENSOR) torch->delete_handle(pointer);
    if (arg->kind == CTK_ARG_STRING) torch->delete_string(pointer);
    if (arg->kind != CTK_ARG_LIST) return;
    size_t size = 0;
    torch->list_size(pointer, &size);
    for (size_t i = 0; i < size; ++i) {
        ivalue item = 0;
        torch->list_item(pointer, i, &item);
        forget(torch, &arg->items[i], item);
    }
    torch->delete_list(pointer);
}

static int list_argument(ctk_call* call, const ctk_arg* arg, void** out) {
    const torch_t* torch = context_of(call)->torch;
    ctk_arg plain = *arg;
    plain.is_optional = 0;
    if (torch->new_list((size_t)arg->number, out)) return host_refused(call, "a list");
    for (int64_t i = 0; i < arg->number; ++i) {
        ivalue item = 0;
        int failed = argument(call, &arg->items[i], &item);
        if (!failed && torch->push(*out, item)) {
            forget(torch, &arg->items[i], item);
            failed = host_refused(call, "a list");
        }
        if (failed) {
            forget(torch, &plain, (ivalue)(uintptr_t)*out);
            return 1;
        }
    }
    return 0;
}

static int argument(ctk_call* call, const ctk_arg* arg, ivalue* out) {
    const torch_t* torch = context_of(call)->torch;
    void* pointer = NULL;
    *out = 0;
    switch (arg->kind) {
        case CTK_ARG_NONE: return 0;
        case CTK_ARG_INT: *out = (ivalue)arg->number; break;
        case CTK_ARG_FLOAT: memcpy(out, &arg->real, sizeof(*out)); break;
        case CTK_ARG_TENSOR:
            if ((pointer = handle_of(call, arg->value)) == NULL) return 1;
            break;
        case CTK_ARG_STRING:
            if (torch->new_string(arg->text, strlen(arg->text), &pointer))
                return host_refused(call, "a string");
            break;
        default:
            if (list_argument(call, arg, &pointer)) return 1;
    }
    if (pointer != NULL) *out = (ivalue)(uintptr_t)pointer;
    if (!arg->is_optional) return 0;
    ivalue* box = NULL;
    if (torch->new_box != NULL) torch->new_box(&box);
    else box = torch->cpp_new(sizeof(*box));
    if (box == NULL) {
        ctk_arg plain = *arg;
        plain.is_optional = 0;
        forget(torch, &plain, *out);
        return host_fail(call, CTK_ERROR_MEMORY, "there is no memory for an argument");
    }
    *box = *out;
    *out = (ivalue)(uintptr_t)box;
    return 0;
}

/* Take a list of tensors; all of it is consumed, whether it succeeds or not. */
static int take_list(ctk_call* call, const char* name, const ctk_result* result, void* list) {
    const torch_t* torch = context_of(call)->torch;
    size_t size = 0;
    int failed = torch->list_size(list, &size) != 0;
    int wrong = !failed && size < (size_t)result->count;
    for (size_t i = 0; i < size; ++i) {
        ivalue item = 0;
        torch->list_item(list, i, &item);
        void* handle = (void*)(uintptr_t)item;
        if (failed || wrong || i >= (size_t)result->count) torch->delete_handle(handle);
        else failed = host_adopt(call, &result->values[i], handle);
    }
    torch->delete_list(list);
    if (wrong)
        return host_fail(call, CTK_ERROR_OPERATOR, "%s gave %d tensors, and the graph takes %d of them: "
                         "compile the package again", name, (int)size, (int)result->count);
    return failed;
}

static int take_results(ctk_call* call, const char* name, const ctk_result* results, int32_t count,
                        const ivalue* stack) {
    const torch_t* torch = context_of(call)->torch;
    int failed = 0;
    for (int32_t i = 0; i < count; ++i) {
        void* pointer = (void*)(uintptr_t)stack[i];
        switch (results[i].kind) {
            case CTK_GET_INT: *results[i].number = (int64_t)stack[i]; break;
            case CTK_GET_FLOAT: memcpy(results[i].real, &stack[i], sizeof(double)); break;
            case CTK_GET_LIST: failed |= take_list(call, name, &results[i], pointer); break;
            default:
                if (failed || results[i].values == NULL) torch->delete_handle(pointer);
                else failed = host_adopt(call, results[i].values, pointer);
        }
    }
    return failed;
}

static int host_call(ctk_call* call, const char* name, const char* overload, const ctk_arg* args,
                     int32_t arg_count, const ctk_result* results, int32_t result_count) {
    const torch_t* torch = context_of(call)->torch;
    ivalue stack[64];
    if (arg_count > 64 || result_count > 64)
        return host_fail(call, CTK_ERROR_UNSUPPORTED, "%s has more than 64 arguments", name);
    for (int32_t i = 0; i < arg_count; ++i)
        if (argument(call, &args[i], &stack[i])) {
            while (i-- > 0) forget(torch, &args[i], stack[i]);
            return 1;
        }
    if (torch->call(name, overload, stack, torch->abi)) return host_refused(call, name);
    return take_results(call, name, results, result_count, stack);
}

static const ctk_host HOST = {
    host_empty, host_view, host_fit, host_require, host_copy, host_share, host_drop, host_call,
    host_function, host_handle, host_release, host_adopt, host_refresh, host_refused, host_fail,
};

/* ---------------------------------------------------------------- 7. packages */

struct ctk_entry {
    ctk_package* package;
    const ctk_graph* graph;
};

struct ctk_package {
    file_t file;
    int descriptor; /* Stays open: the system knows a loaded library by this name. */
    void* library;
    const ctk_description* description;
    torch_t torch;
    ctk_entry* entries;
    ctk_value* weights;
    char path[256];
};

/* A file without a name in memory; where the system has none, or lets no code run from there, a
 * private file that is removed at once. */
static int file_in_memory(const uint8_t* bytes, size_t size) {
    int descriptor = memfd_create("ctk-package", MFD_CLOEXEC);
    if (descriptor < 0) {
        const char* folder = getenv("TMPDIR");
        char path[4096];
        snprintf(path, sizeof(path), "%s/ctk-package-XXXXXX", folder != NULL ? folder : "/tmp");
        descriptor = mkostemp(path, O_CLOEXEC);
        if (descriptor >= 0) unlink(path);
    }
    for (size_t done = 0; descriptor >= 0 && done < size;) {
        ssize_t written = write(descriptor, bytes + done, size - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            close(descriptor);
            return -1;
        }
        done += (size_t)written;
    }
    return descriptor;
}

/* The threads of OpenMP wait within its library: it must stay when the package is closed. */
static void keep_openmp(void) {
    static const char* const names[] = {
        "libgomp.so.1", "libomp.so", "libomp.so.5", "libiomp5.so",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        void* found = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
        if (found != NULL) dlclose(found);
    }
}

static ctk_status open_library(ctk_package* package, const char* torch_library, ctk_error* error) {
    size_t size = 0;
    const char* path = package->path;
    const uint8_t* bytes = member(&package->file, LIBRARY_MEMBER, &size);
    if (bytes == NULL)
        return fail(error, CTK_ERROR_UNSUPPORTED,
                    "%s has no code for C (no member %s): load it with ctk.load from Python, or compile "
                    "it for the CPU with the code generator c", path, LIBRARY_MEMBER);
    ctk_status status = check_elf(path, bytes, size, error);
    if (status) return status;
    package->descriptor = file_in_memory(bytes, size);
    if (package->descriptor < 0)
        return fail(error, CTK_ERROR_MEMORY, "%s: no place for its library: %s", path, strerror(errno));
    char name[64];
    snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)getpid(), package->descriptor);
    package->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (package->library == NULL) { /* What it links to may be known to torch alone: libgomp. */
        char reason[512];
        snprintf(reason, sizeof(reason), "%s", dlerror());
        if (open_torch(&package->torch, torch_library, NULL) == CTK_OK)
            package->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (package->library == NULL)
            return fail(error, CTK_ERROR_LIBRARY,
                        "the library of %s cannot be loaded: %s; install what it names (libgomp.so.1 is "
                        "in the system's package libgomp1, and beside libtorch_cpu.so), or put its "
                        "folder into LD_LIBRARY_PATH", path, reason);
    }
    keep_openmp();
    package->description = dlsym(package->library, "ctk_package_description");
    if (package->description == NULL)
        return fail(error, CTK_ERROR_CORRUPT, "the library of %s describes no package", path);
    return CTK_OK;
}

static ctk_status check_description(
    ctk_package* package, const char* torch_library, ctk_error* error) {
    const ctk_description* description = package->description;
    if (description->abi_version != CTK_ABI_VERSION)
        return fail(error, CTK_ERROR_VERSION,
                    "%s is for version %d of ctk.h, and this program has version %d: use the ctk.h and "
                    "ctk.c of the ctk that made it", package->path, description->abi_version,
                    CTK_ABI_VERSION);
    ctk_status status = check_features(package->path, description->cpu_features, error);
    if (status || description->torch_version == NULL) return status;
    if ((status = open_torch(&package->torch, torch_library, error))) return status;
    if (strcmp(package->torch.version, description->torch_version) != 0)
        return fail(error, CTK_ERROR_VERSION,
                    "%s was made with torch %s, and this is torch %s: use that version, or compile the "
                    "package again", package->path, description->torch_version, package->torch.version);
    return CTK_OK;
}

static ctk_status map_weights(ctk_package* package, ctk_error* error) {
    const ctk_description* description = package->description;
    size_t count = (size_t)description->weight_count;
    package->weights = calloc(count + 1, sizeof(*package->weights));
    package->entries = calloc((size_t)description->graph_count + 1, sizeof(*package->entries));
    if (package->weights == NULL || package->entries == NULL)
        return fail(error, CTK_ERROR_MEMORY, "there is no memory for the weights' descriptions");
    for (int32_t i = 0; i < description->graph_count; ++i)
        package->entries[i] = (ctk_entry){package, &description->graphs[i]};
    for (size_t i = 0; i < count; ++i) {
        const ctk_weight* weight = &description->weights[i];
        const ctk_info* info = &weight->info;
        int64_t sizes[CTK_MAX_RANK];
        size_t size = 0;
        if (weight->member == NULL) continue;
        for (int32_t d = 0; d < info->rank; ++d) sizes[d] = info->dims[d].size;
        uint8_t* bytes = member(&package->file, weight->member, &size);
        int64_t needed = extent(info->rank, sizes, weight->strides) * (int64_t)ctk_dtype_size(info->dtype);
        if (bytes == NULL || weight->offset < 0 || needed < 0 || (size_t)(weight->offset + needed) > size)
            return fail(error, CTK_ERROR_CORRUPT, "%s lacks the weight %s", package->path, info->name);
        set_shape(&package->weights[i].tensor, info->dtype, info->rank, sizes, weight->strides);
        package->weights[i].tensor.data = bytes + weight->offset;
    }
    return CTK_OK;
}

ctk_package* ctk_open_with_torch(const char* path, const char* torch_library, ctk_error* error) {
    succeed(error);
    ctk_package* package = path != NULL ? calloc(1, sizeof(*package)) : NULL;
    if (path == NULL) fail(error, CTK_ERROR_ARGUMENT, "ctk_open: path is NULL");
    else if (package == NULL) fail(error, CTK_ERROR_MEMORY, "there is no memory for a package");
    if (package == NULL) return NULL;
    package->descriptor = -1;
    snprintf(package->path, sizeof(package->path), "%s", path);
    if (map_file(path, &package->file, error) || check_file(path, &package->file, error) ||
        open_library(package, torch_library, error) ||
        check_description(package, torch_library, error) || map_weights(package, error)) {
        ctk_close(package);
        return NULL;
    }
    return package;
}

ctk_package* ctk_open(const char* path, ctk_error* error) {
    return ctk_open_with_torch(path, NULL, error);
}

/* torch stays loaded: outputs may be its own, and its threads run on. */
void ctk_close(ctk_package* package) {
    if (package == NULL) return;
    if (package->weights != NULL)
        for (int32_t i = 0; i < package->description->weight_count; ++i)
            host_drop(&package->weights[i]);
    free(package->weights);
    free(package->entries);
    if (package->library != NULL) dlclose(package->library);
    if (package->descriptor >= 0) close(package->descriptor);
    if (package->file.bytes != NULL) munmap(package->file.bytes, package->file.size);
    free(package);
}

size_t ctk_entry_count(const ctk_package* package) {
    return (size_t)package->description->graph_count;
}

const ctk_entry* ctk_entry_at(const ctk_package* package, size_t number) {
    return number < ctk_entry_count(package) ? &package->entries[number] : NULL;
}

const ctk_entry* ctk_entry_find(const ctk_package* package, const char* name) {
    if (!package || !name) return NULL;
    for (size_t i = 0; i < ctk_entry_count(package); ++i)
        if (strcmp(package->entries[i].graph->name, name) == 0) return &package->entries[i];
    return NULL;
}

const char* ctk_entry_name(const ctk_entry* entry) { return entry->graph->name; }

const char* ctk_entry_refusal(const ctk_entry* entry) { return entry->graph->refusal; }

int ctk_needs_torch(const ctk_package* package) {
    return package->description->torch_version != NULL;
}

size_t ctk_input_count(const ctk_entry* entry) { return (size_t)entry->graph->input_count; }

size_t ctk_output_count(const ctk_entry* entry) { return (size_t)entry->graph->output_count; }

const ctk_info* ctk_input_info(const ctk_entry* entry, size_t number) {
    return number < ctk_input_count(entry) ? &entry->graph->inputs[number].info : NULL;
}

const ctk_info* ctk_output_info(const ctk_entry* entry, size_t number) {
    return number < ctk_output_count(entry) ? &entry->graph->outputs[number] : NULL;
}

size_t ctk_weight_count(const ctk_package* package) {
    return (size_t)package->description->weight_count;
}

const ctk_info* ctk_weight_info(const ctk_package* package, size_t number) {
    return number < ctk_weight_count(package) ? &package->description->weights[number].info : NULL;
}

int ctk_weight_is_bound(const ctk_package* package, size_t number) {
    return number < ctk_weight_count(package) && package->weights[number].tensor.data != NULL;
}

/* ---------------------------------------------------------------- 8. calls */

static ctk_status check_memory(const ctk_info* info, const ctk_tensor* tensor, ctk_error* error) {
    const char* name = info->name;
    if (tensor->dtype != info->dtype)
        return fail(error, CTK_ERROR_ARGUMENT, "%s is %s, and must be %s", name,
                    dtype_name(tensor->dtype), dtype_name(info->dtype));
    if (tensor->rank != info->rank)
        return fail(error, CTK_ERROR_ARGUMENT, "%s has %d dimensions, and must have %d", name,
                    tensor->rank, info->rank);
    for (int32_t d = 0; d < tensor->rank; ++d)
        if (tensor->sizes[d] < 0 || tensor->strides[d] < 0)
            return fail(error, CTK_ERROR_ARGUMENT,
                        "dimension %d of %s has size %lld and stride %lld: neither may be negative", d,
                        name, (long long)tensor->sizes[d], (long long)tensor->strides[d]);
    int64_t elements = extent(tensor->rank, tensor->sizes, tensor->strides);
    if (elements < 0)
        return fail(error, CTK_ERROR_ARGUMENT, "%s is larger than memory can be", name);
    if (elements > 0 && tensor->data == NULL)
        return fail(error, CTK_ERROR_ARGUMENT, "%s has no memory: data is NULL", name);
    if (elements > 0 && (uintptr_t)tensor->data % ctk_dtype_size(tensor->dtype) != 0)
        return fail(error, CTK_ERROR_ARGUMENT, "the memory of %s is not aligned to its elements", name);
    return CTK_OK;
}

static ctk_status bind_symbol(const ctk_graph* graph, int32_t number, int64_t value, int64_t* symbols,
                              const char* what, ctk_error* error) {
    const ctk_symbol* symbol = &graph->symbols[number];
    if (value < symbol->min || value > symbol->max)
        return fail(error, CTK_ERROR_ARGUMENT, "%s is %lld, and the package is for %lld to %lld (%s)",
                    what, (long long)value, (long long)symbol->min, (long long)symbol->max, symbol->name);
    if (symbols[number] >= 0 && symbols[number] != value)
        return fail(error, CTK_ERROR_ARGUMENT,
                    "%s is %lld, and must be %lld: it is the same size, %s, as in an input before", what,
                    (long long)value, (long long)symbols[number], symbol->name);
    symbols[number] = value;
    return CTK_OK;
}

static ctk_status check_size(const ctk_graph* graph, const ctk_size* size, int64_t have,
                             int64_t* symbols, const char* what, ctk_error* error) {
    if (size->symbol >= 0) return bind_symbol(graph, size->symbol, have, symbols, what, error);
    int64_t must = size->computed != NULL ? size->computed(symbols) : size->number;
    if (have == must) return CTK_OK;
    return fail(error, CTK_ERROR_ARGUMENT, "%s is %lld, and must be %lld", what, (long long)have,
                (long long)must);
}

/* First what is a number or a symbol; then, with all symbols known, what is computed of them. */
static ctk_status check_sizes(const ctk_graph* graph, const ctk_input* input, const ctk_tensor* tensor,
                              int64_t* symbols, int computed, ctk_error* error) {
    const ctk_info* info = &input->info;
    char what[200];
    for (int32_t d = 0; d < info->rank; ++d) {
        if ((input->sizes[d].computed != NULL) != computed) continue;
        int used = snprintf(what, sizeof(what), "dimension %d of %.100s", d, info->name);
        if (computed)
            snprintf(what + used, sizeof(what) - (size_t)used, " (%.60s)", info->dims[d].expression);
        if (check_size(graph, &input->sizes[d], tensor->sizes[d], symbols, what, error))
            return CTK_ERROR_ARGUMENT;
    }
    if (input->number == NULL || (input->number->computed != NULL) != computed) return CTK_OK;
    return check_size(graph, input->number, *(const int64_t*)tensor->data, symbols, info->name, error);
}

static ctk_status check_inputs(
    const ctk_graph* graph, const ctk_tensor* inputs, int64_t* symbols, ctk_error* error) {
    ctk_status status;
    for (int32_t i = 0; i < graph->symbol_count; ++i) symbols[i] = -1;
    for (int32_t i = 0; i < graph->input_count; ++i) {
        const ctk_input* input = &graph->inputs[i];
        if ((status = check_memory(&input->info, &inputs[i], error)) ||
            (status = check_sizes(graph, input, &inputs[i], symbols, 0, error)))
            return status;
    }
    for (int32_t i = 0; i < graph->input_count; ++i)
        if ((status = check_sizes(graph, &graph->inputs[i], &inputs[i], symbols, 1, error))) return status;
    for (int32_t i = 0; i < graph->guard_count; ++i)
        if (!graph->guards[i].holds(symbols))
            return fail(error, CTK_ERROR_ARGUMENT,
                        "the sizes of the inputs do not fit the package: it is for those where %s",
                        graph->guards[i].text);
    return CTK_OK;
}

/* Kernels take it that what they write is nobody else's. */
static ctk_status check_overlap(const ctk_graph* graph, const ctk_tensor* inputs, ctk_error* error) {
    for (int32_t i = 0; i < graph->input_count; ++i) {
        if (!graph->inputs[i].info.is_written) continue;
        const ctk_tensor* a = &inputs[i];
        int64_t a_bytes = extent(a->rank, a->sizes, a->strides) * (int64_t)ctk_dtype_size(a->dtype);
        for (int32_t j = 0; j < graph->input_count; ++j) {
            const ctk_tensor* b = &inputs[j];
            int64_t b_bytes = extent(b->rank, b->sizes, b->strides) * (int64_t)ctk_dtype_size(b->dtype);
            const char *first = a->data, *second = b->data;
            if (i != j && a_bytes && b_bytes && first < second + b_bytes && second < first + a_bytes)
                return fail(error, CTK_ERROR_ARGUMENT, "the graph writes to %s, whose memory overlaps "
                            "that of %s: give it a copy", graph->inputs[i].info.name,
                            graph->inputs[j].info.name);
        }
    }
    return CTK_OK;
}

static ctk_status check_weights(const ctk_package* package, const ctk_graph* graph, ctk_error* error) {
    for (int32_t i = 0; i < graph->weight_count; ++i) {
        int32_t number = graph->weights[i];
        const ctk_tensor* weight = &package->weights[number].tensor;
        if (weight->data == NULL && extent(weight->rank, weight->sizes, weight->strides) != 0)
            return fail(error, CTK_ERROR_WEIGHT,
                        "the weight %s was left out of the package, and is not bound: call "
                        "ctk_set_weight for it", package->description->weights[number].info.name);
    }
    return CTK_OK;
}

ctk_status ctk_set_weight(
    ctk_package* package, const char* name, const ctk_tensor* weight, ctk_error* error) {
    succeed(error);
    if (!package || !name || !weight)
        return fail(error, CTK_ERROR_ARGUMENT, "%s is missing: ctk_set_weight takes all three",
                    !package ? "the package" : !name ? "the name of the weight" : "the weight");
    const ctk_description* description = package->description;
    for (int32_t i = 0; i < description->weight_count; ++i) {
        const ctk_weight* known = &description->weights[i];
        if (strcmp(known->info.name, name) != 0) continue;
        ctk_status status = check_memory(&known->info, weight, error);
        if (status) return status;
        int64_t sizes[CTK_MAX_RANK];
        for (int32_t d = 0; d < weight->rank; ++d) {
            sizes[d] = known->info.dims[d].size;
            if (weight->sizes[d] != sizes[d])
                return fail(error, CTK_ERROR_ARGUMENT, "dimension %d of %s is %lld, and must be %lld", d,
                            name, (long long)weight->sizes[d], (long long)sizes[d]);
        }
        context_t context = {.call = {&HOST}, .error = error};
        ctk_value given = {.tensor = *weight};
        given.tensor.owner = NULL;
        if (host_fit(&context.call, &package->weights[i], &given, weight->dtype, weight->rank, sizes,
                     known->strides))
            return context.status;
        return CTK_OK;
    }
    return fail(error, CTK_ERROR_ARGUMENT, "the package has no weight %s", name);
}

static ctk_status run(const ctk_entry* entry, const ctk_tensor* inputs, ctk_value* values,
                      int64_t* symbols, ctk_tensor* outputs, ctk_error* error) {
    const ctk_graph* graph = entry->graph;
    ctk_value* results = values + graph->input_count;
    ctk_status status = check_inputs(graph, inputs, symbols, error);
    if (status || (status = check_overlap(graph, inputs, error)) ||
        (status = check_weights(entry->package, graph, error)))
        return status;
    for (int32_t i = 0; i < graph->input_count; ++i) {
        values[i].tensor = inputs[i];
        values[i].tensor.owner = NULL; /* the caller's, also if it was an output of another call */
    }
    const torch_t* torch = entry->package->description->torch_version ? &entry->package->torch : NULL;
    context_t context = {.call = {&HOST}, .torch = torch, .error = error};
    _Bool grad_mode = torch != NULL && torch->grad_mode();
    if (grad_mode) torch->set_grad_mode(0);
    int failed = graph->run(&context.call, values, entry->package->weights, symbols, results);
    if (grad_mode) torch->set_grad_mode(1);
    for (int32_t i = 0; i < graph->output_count; ++i) {
        if (failed) host_drop(&results[i]);
        else outputs[i] = results[i].tensor;
    }
    return failed ? context.status : CTK_OK;
}

ctk_status ctk_run(
    const ctk_entry* entry, const ctk_tensor* inputs, size_t input_count,
    ctk_tensor* outputs, size_t output_count, ctk_error* error) {
    succeed(error);
    if (entry == NULL) return fail(error, CTK_ERROR_ARGUMENT, "ctk_run: entry is NULL");
    const ctk_graph* graph = entry->graph;
    if (graph->refusal != NULL)
        return fail(error, CTK_ERROR_UNSUPPORTED,
                    "the entry point %s runs from Python only: %s; load the package with ctk.load",
                    graph->name, graph->refusal);
    if (input_count != ctk_input_count(entry) || output_count != ctk_output_count(entry))
        return fail(error, CTK_ERROR_ARGUMENT,
                    "the entry point %s has %d inputs and %d outputs, and was given %zu and %zu",
                    graph->name, graph->input_count, graph->output_count, input_count, output_count);
    if ((input_count && inputs == NULL) || (output_count && outputs == NULL))
        return fail(error, CTK_ERROR_ARGUMENT, "ctk_run: %s is NULL",
                    input_count && inputs == NULL ? "inputs" : "outputs");
    size_t count = input_count + output_count + 1;
    ctk_value* values = calloc(count, sizeof(*values));
    int64_t* symbols = calloc((size_t)graph->symbol_count + 1, sizeof(*symbols));
    ctk_status status = CTK_ERROR_MEMORY;
    if (values == NULL || symbols == NULL) fail(error, status, "there is no memory for the call");
    else status = run(entry, inputs, values, symbols, outputs, error);
    free(values);
    free(symbols);
    return status;
}

void ctk_tensor_free(ctk_tensor* tensor) {
    ctk_storage* owner = tensor->owner;
    memset(tensor, 0, sizeof(*tensor));
    release_storage(owner);
}

ctk_tensor ctk_tensor_of(void* data, ctk_dtype dtype, int32_t rank, const int64_t* sizes) {
    ctk_tensor tensor;
    memset(&tensor, 0, sizeof(tensor));
    tensor.data = data;
    tensor.dtype = dtype;
    tensor.rank = rank;
    if (rank > CTK_MAX_RANK || !sizes) return tensor; /* which ctk_run refuses by its rank */
    int64_t stride = 1;
    for (int32_t i = rank; i-- > 0;) {
        tensor.sizes[i] = sizes[i];
        tensor.strides[i] = stride;
        stride *= sizes[i] > 0 ? sizes[i] : 1;
    }
    return tensor;
}
