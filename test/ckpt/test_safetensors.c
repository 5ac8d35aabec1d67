/* safetensors as the Python package reads and writes them; malformed files are named. */
#include <lockstep/ckpt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "../support/saved_tensors.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/tensor_data.h"
#include "golden_safetensors.h"

static const float wte[6] = {0, 0.25f, 0.5f, 0.75f, 1, 1.25f};
static const ls_bf16 bias[4] = {0x3f80, 0xc000, 0x3f00, 0x4040};
static const int64_t step = 1234567890123;
static const float named[1] = {0.1f};

/* ---- against the Python package's bytes ---- */

CASE_WITH(test_reads_what_python_wrote, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "golden.safetensors");
    struct ls_error error = {0};
    scratch_write(path, golden_safetensors, sizeof golden_safetensors);
    struct ls_safetensors *file;
    assert_ok(ls_safetensors_open(&file, path, &error), error);
    assert_int_equal(ls_safetensors_count(file), 6);
    assert_string_equal(ls_safetensors_metadata(file, "format"), "pt");
    assert_null(ls_safetensors_metadata(file, "other"));

    const struct ls_tensor_view *view;
    assert_int_equal(
        ls_safetensors_require(file, "wte.weight", LS_F32, 2, (int64_t[]){2, 3}, &view, &error),
        LS_OK);
    assert_memory_equal(tensor_data(file, view->name), wte, sizeof wte);
    assert_int_equal(view->at % (int64_t)sizeof(float), 0);
    view = ls_safetensors_find(file, "h.0.bias");
    assert_memory_equal(tensor_data(file, view->name), bias, sizeof bias);
    view = ls_safetensors_find(file, "step");
    assert_int_equal(view->dims, 0);
    assert_memory_equal(tensor_data(file, view->name), &step, sizeof step);
    view = ls_safetensors_find(file, "empty");
    assert_int_equal(view->bytes, 0);
    assert_int_equal(view->shape[0], 3);
    view = ls_safetensors_find(file, "mask");
    assert_string_equal(view->dtype_name, "BOOL");
    assert_true(view->dtype_known && view->dtype == LS_U8);
    view = ls_safetensors_find(file, "na\"me\\\xc3\xa9");
    assert_memory_equal(tensor_data(file, view->name), named, sizeof named);
    assert_null(ls_safetensors_find(file, "lm_head.weight"));
    for (size_t i = 1; i < ls_safetensors_count(file); i++)
        assert_true(ls_safetensors_at(file, i)->at >= ls_safetensors_at(file, i - 1)->at);
    ls_safetensors_close(file);
}

CASE_WITH(test_require_says_what_differs, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "golden.safetensors");
    struct ls_error error = {0};
    const struct ls_tensor_view *view;
    struct ls_safetensors *file;
    scratch_write(path, golden_safetensors, sizeof golden_safetensors);
    assert_int_equal(ls_safetensors_open(&file, path, &error), LS_OK);
    assert_int_equal(
        ls_safetensors_require(file, "wte.weight", LS_F32, 2, (int64_t[]){3, 2}, &view, &error),
        LS_ECKPT);
    assert_string_equal(error.text, "tensor wte.weight is F32 [2, 3], expected F32 [3, 2]");
    assert_int_equal(
        ls_safetensors_require(file, "wpe.weight", LS_F32, 1, (int64_t[]){3}, &view, &error),
        LS_ECKPT);
    assert_string_equal(error.text, "tensor wpe.weight is missing, expected F32 [3]");
    ls_safetensors_close(file);
}

/* All but "mask": ls_dtype has no BOOL to write. */
static const struct ls_tensor_entry entries[] = {
    {"wte.weight", LS_F32, 2, {2, 3}, wte},      {"empty", LS_U8, 2, {3, 0}, NULL},
    {"h.0.bias", LS_BF16, 1, {4}, bias},         {"step", LS_I64, 0, {0}, &step},
    {"na\"me\\\xc3\xa9", LS_F32, 1, {1}, named},
};
enum { ENTRIES = sizeof entries / sizeof entries[0] };

CASE_WITH(test_writes_what_python_writes, scratch_setup, scratch_teardown)
{
    /* The golden file without its BOOL tensor, which stands last. */
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"na\\\"me\\\\\xc3\xa9\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
        "\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[12,36]},"
        "\"h.0.bias\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[36,44]},"
        "\"empty\":{\"dtype\":\"U8\",\"shape\":[3,0],\"data_offsets\":[44,44]}";
    assert_memory_equal(golden_safetensors + 8, header, sizeof header - 1);

    const char *path = scratch_path(*state, "ours.safetensors");
    struct ls_error error = {0};
    assert_ok(tensors_save(path, entries, ENTRIES, &error), error);
    size_t size;
    char *ours = scratch_read(path, &size);
    assert_memory_equal(ours + 8, header, sizeof header - 1);
    uint64_t length;
    memcpy(&length, ours, 8);
    assert_int_equal(length % 8, 0);
    assert_int_equal(length, (sizeof header + 7) / 8 * 8); /* with its last brace */
    assert_int_equal(size, 8 + length + 44);
    uint64_t golden_length;
    memcpy(&golden_length, golden_safetensors, 8);
    assert_memory_equal(ours + 8 + length, golden_safetensors + 8 + golden_length, 44);
    free(ours);
    assert_int_equal(scratch_count(*state), 1);
}

/* ---- malformed files ---- */

struct bad_case {
    const char *header;  /* JSON as it is in the file */
    size_t header_bytes; /* 0: strlen */
    size_t data_bytes;
    int64_t claimed; /* the length field; -1: the true one */
    const char *expected;
};

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(a_offsets, b_offsets)                                                                  \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" a_offsets "},"                      \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" b_offsets "}}"

static const struct bad_case bad_cases[] = {
    {"", 0, 0, 0, "does not start with {"},
    {"[]", 0, 0, -1, "does not start with {"},
    {" {}", 0, 0, -1, "does not start with {"},
    {"{}", 0, 0, 100000001, "at most 100000000"},
    {"{}", 0, 0, INT64_MIN, "at most 100000000"},
    {"{}", 0, 0, 3, "it is truncated"},
    {"{", 0, 0, -1, "not valid JSON"},
    {"{} x", 0, 0, -1, "not valid JSON"},
    {"{}\0", 3, 0, -1, "not valid JSON"},
    {"{\"\xff\":{}}", 0, 0, -1, "not valid JSON"},
    {"{\"\xc0\xaf\":{}}", 0, 0, -1, "not valid JSON"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}",
     0, 2, -1, "duplicate"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}", 0, 1, -1,
     "duplicate"},
    {"{\"a\":3}", 0, 0, -1, "tensor a: expected a dtype"},
    {ONE("Q4", "[1]", "[0,1]"), 0, 1, -1, "found Q4"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 0, 1, -1, "found none"},
    {ONE("U8", "3", "[0,3]"), 0, 3, -1, "found no list"},
    {ONE("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 0, 1, -1, "at most 8 dims"},
    {ONE("U8", "[-1]", "[0,1]"), 0, 1, -1, "dim 0 of the shape"},
    {ONE("U8", "[1.0]", "[0,1]"), 0, 1, -1, "dim 0 of the shape"},
    {ONE("U8", "[4294967296,4294967296]", "[0,0]"), 0, 0, -1, "overflows"},
    {ONE("F32", "[4611686018427387905]", "[0,4]"), 0, 4, -1, "overflows"},
    {ONE("F4", "[3]", "[0,2]"), 0, 2, -1, "do not fill whole bytes"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 0, 1, -1, "expected data_offsets"},
    {ONE("U8", "[1]", "[0]"), 0, 1, -1, "expected data_offsets"},
    {ONE("U8", "[1]", "[0,1,2]"), 0, 1, -1, "expected data_offsets"},
    {ONE("U8", "[1]", "[0,\"1\"]"), 0, 1, -1, "expected data_offsets"},
    {ONE("U8", "[1]", "[1,0]"), 0, 1, -1, "run backwards"},
    {ONE("U8", "[1]", "[-1,0]"), 0, 1, -1, "run backwards"},
    {ONE("U8", "[1]", "[0,99999999999999999999]"), 0, 1, -1, "expected data_offsets"},
    {ONE("F32", "[2]", "[0,4]"), 0, 4, -1, "make 8 bytes, its data_offsets [0, 4] hold 4"},
    {ONE("F32", "[2]", "[0,8]"), 0, 4, -1, "ends at byte 8 of the data, and the file has 4"},
    {ONE("F32", "[1]", "[0,4]"), 0, 5, -1, "end at byte 4 of the data, and the file has 5"},
    {ONE("F32", "[1]", "[4,8]"), 0, 8, -1, "begins at byte 4 of the data, expected 0: a hole"},
    {TWO("[0,2]", "[3,5]"), 0, 5, -1, "expected 2: a hole"},
    {TWO("[0,2]", "[1,3]"), 0, 3, -1, "it overlaps"},
    {TWO("[0,2]", "[0,2]"), 0, 2, -1, "it overlaps"},
    {"{}", 0, 1, -1, "end at byte 0 of the data, and the file has 1"},
    {"{\"__metadata__\":[]}", 0, 0, -1, "must map strings to strings"},
    {"{\"__metadata__\":{\"format\":1}}", 0, 0, -1, "its key \"format\" does not"},
};

CASE_WITH(test_malformed_files_are_named, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "bad.safetensors");
    for (size_t i = 0; i < sizeof bad_cases / sizeof bad_cases[0]; i++) {
        const struct bad_case *bad = &bad_cases[i];
        size_t header_bytes = bad->header_bytes ? bad->header_bytes : strlen(bad->header);
        uint64_t claimed = bad->claimed == -1 ? header_bytes : (uint64_t)bad->claimed;
        unsigned char bytes[1024] = {0};
        for (int b = 0; b < 8; b++)
            bytes[b] = (unsigned char)(claimed >> (8 * b));
        memcpy(bytes + 8, bad->header, header_bytes);
        scratch_write(path, bytes, 8 + header_bytes + bad->data_bytes);
        struct ls_error error = {0};
        struct ls_safetensors *file;
        int code = ls_safetensors_open(&file, path, &error);
        if (code != LS_ECKPT || !strstr(error.text, bad->expected) || !strstr(error.text, path))
            fail_msg("case %zu, %s: code %d, \"%s\", expected \"%s\"", i, bad->header, code,
                     error.text, bad->expected);
        assert_null(file);
    }
}

/* What a clone without git-lfs has in the place of a large file. */
CASE_WITH(test_a_pointer_of_git_lfs_is_named, scratch_setup, scratch_teardown)
{
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab"
        "2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
    const char *path = scratch_path(*state, "model.safetensors");
    struct ls_error error = {0};
    struct ls_safetensors *file;
    scratch_write(path, pointer, sizeof pointer - 1);
    assert_int_equal(ls_safetensors_open(&file, path, &error), LS_ECKPT);
    assert_text_contains(error.text,
                         "model.safetensors: a pointer of Git LFS, in place of the file: "
                         "fetch it with git lfs pull");
    scratch_write(path, "version of another kind", 23);
    assert_int_equal(ls_safetensors_open(&file, path, &error), LS_ECKPT);
    assert_text_contains(error.text, "this is no safetensors file");
}

/* Every file that is shorter than the golden one is refused. */
CASE_WITH(test_every_truncation_is_refused, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "cut.safetensors");
    for (size_t bytes = 0; bytes < sizeof golden_safetensors; bytes++) {
        struct ls_error error = {0};
        struct ls_safetensors *file;
        scratch_write(path, golden_safetensors, bytes);
        if (ls_safetensors_open(&file, path, &error) != LS_ECKPT)
            fail_msg("%zu of %zu bytes: \"%s\"", bytes, sizeof golden_safetensors, error.text);
    }
    struct ls_error error = {0};
    struct ls_safetensors *file;
    assert_int_equal(ls_safetensors_open(&file, scratch_path(*state, "absent"), &error), LS_EIO);
    assert_int_equal(ls_safetensors_open(&file, *state, &error), LS_ECKPT);
}

/* ---- the writer's contract ---- */

static void expect_digest(const void *bytes, size_t count, const char *text)
{
    char want[33];
    XXH128_hash_t hash = XXH3_128bits(bytes, count);
    snprintf(want, sizeof want, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
    assert_string_equal(text, want);
}

/* Each tensor's bytes and the header have their digest. */
static void expect_digests(const char *path, const struct ls_safetensors_digests *digests)
{
    char *text = scratch_read(path, NULL);
    expect_digest(text, digests->header_bytes, digests->header);
    free(text);
    for (size_t i = 0; i < ENTRIES; i++) {
        size_t bytes = ls_dtype_bytes(entries[i].dtype);
        for (int d = 0; d < entries[i].dims; d++)
            bytes *= (size_t)entries[i].shape[d];
        expect_digest(entries[i].data, bytes, digests->tensors[i]);
    }
}

CASE_WITH(test_streaming_in_pieces, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "pieces.safetensors");
    struct ls_error error = {0};
    struct ls_safetensors_writer *writer;
    struct ls_metadata metadata = {"author", "test"};
    assert_int_equal(
        ls_safetensors_writer_open(&writer, path, entries, ENTRIES, &metadata, 1, NULL, &error),
        LS_OK);
    char hex[ENTRIES][33];
    struct ls_safetensors_digests digests = {.tensors = hex};
    ls_safetensors_writer_hash(writer, &digests);
    static const char *const order[] = {"step", "na\"me\\\xc3\xa9", "wte.weight", "h.0.bias"};
    const struct ls_tensor_entry *ordered[ENTRIES];
    ls_safetensors_order(entries, ENTRIES, ordered);
    for (size_t i = 0; i < 4; i++) {
        const struct ls_tensor_entry *next = ls_safetensors_writer_next(writer);
        assert_ptr_equal(ordered[i], next);
        assert_string_equal(next->name, order[i]);
        size_t bytes = ls_dtype_bytes(next->dtype);
        for (int d = 0; d < next->dims; d++)
            bytes *= (size_t)next->shape[d];
        for (size_t b = 0; b < bytes; b++) {
            assert_ptr_equal(ls_safetensors_writer_next(writer), next);
            assert_int_equal(
                ls_safetensors_writer_append(writer, (const char *)next->data + b, 1, &error),
                LS_OK);
        }
    }
    assert_null(ls_safetensors_writer_next(writer));
    assert_int_equal(ls_safetensors_writer_append(writer, "x", 1, &error), LS_EINVAL);
    uint64_t size;
    assert_int_equal(ls_safetensors_writer_finish(writer, &size, &error), LS_OK);
    assert_int_equal(ls_safetensors_writer_commit(writer, &error), LS_OK);
    expect_digests(path, &digests);
    struct ls_safetensors *file;
    assert_ok(ls_safetensors_open(&file, path, &error), error);
    assert_string_equal(ls_safetensors_metadata(file, "author"), "test");
    assert_string_equal(ls_safetensors_metadata(file, "format"), "pt");
    assert_memory_equal(tensor_data(file, "wte.weight"), wte, sizeof wte);
    ls_safetensors_close(file);
}

CASE_WITH(test_wrong_sizes_and_names_leave_nothing, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "wrong.safetensors");
    struct ls_error error = {0};
    struct ls_safetensors_writer *writer;
    assert_int_equal(
        ls_safetensors_writer_open(&writer, path, entries, ENTRIES, NULL, 0, NULL, &error), LS_OK);
    assert_int_equal(ls_safetensors_writer_append(writer, &step, sizeof step, &error), LS_OK);
    assert_int_equal(ls_safetensors_writer_append(writer, wte, sizeof wte, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "declared with 4 bytes, it gets 24"));
    assert_int_equal(ls_safetensors_writer_commit(writer, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "fewer than declared"));

    struct ls_tensor_entry bad[2] = {{"a", LS_U8, 1, {1}, "x"}, {"a", LS_I8, 1, {1}, "x"}};
    assert_int_equal(tensors_save(path, bad, 2, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "already taken"));
    bad[1].name = "__metadata__";
    assert_int_equal(tensors_save(path, bad, 2, &error), LS_EINVAL);
    bad[1].name = "\xff";
    assert_int_equal(tensors_save(path, bad, 2, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "UTF-8"));
    bad[1] = (struct ls_tensor_entry){"b", LS_F32, 2, {INT64_MAX, 4}, NULL};
    assert_int_equal(tensors_save(path, bad, 2, &error), LS_EINVAL);
    bad[1] = (struct ls_tensor_entry){"b", LS_F32, 1, {-1}, NULL};
    assert_int_equal(tensors_save(path, bad, 2, &error), LS_EINVAL);
    assert_int_equal(scratch_count(*state), 0);
}

CASE_WITH(test_large_tensors_go_through, scratch_setup, scratch_teardown)
{
    enum { COUNT = 3 << 20 }; /* 12 MiB: several chunks, past the write buffer */
    const char *path = scratch_path(*state, "large.safetensors");
    float *values = malloc(COUNT * sizeof *values);
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    struct ls_tensor_entry large[] = {{"b", LS_F32, 1, {COUNT}, values},
                                      {"a", LS_F32, 1, {3}, values},
                                      {"c", LS_F32, 1, {3}, values}};
    struct ls_error error = {0};
    assert_ok(tensors_save(path, large, 3, &error), error);
    struct ls_safetensors *file;
    assert_ok(ls_safetensors_open(&file, path, &error), error);
    assert_memory_equal(tensor_data(file, "b"), values, COUNT * sizeof *values);
    assert_memory_equal(tensor_data(file, "c"), values, 12);
    ls_safetensors_close(file);
    free(values);
}

SUITE_MAIN(NULL, NULL)
