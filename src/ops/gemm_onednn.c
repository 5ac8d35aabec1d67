/* The only file that knows oneDNN's interface (2.x; Debian 12 has 2.6). */
#include "ops/gemm_onednn.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#if DNNL_VERSION_MAJOR != 2
#error "this wrapper is written for oneDNN 2.x (Debian 12: libdnnl-dev 2.6); 3.x has other calls"
#endif

/* A primitive with its memory objects: execution sets their pointers and allocates nothing. */
struct entry {
    struct product product;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c, scratch;
    size_t scratch_bytes;
};

/* One per thread, so that nothing is locked or shared while products run. */
struct thread_cache {
    dnnl_stream_t stream;
    struct entry *entries; /* open addressing, capacity a power of two, at most half full */
    size_t count, capacity;
    void *scratch; /* for the primitive that runs */
    size_t scratch_bytes;
};

struct ls_gemm_cache {
    dnnl_engine_t engine; /* NULL until the library is first used */
    int threads;
    struct thread_cache thread[];
};

static int library_error(struct ls_error *error, const char *call, dnnl_status_t status)
{
    return ls_error_set(error, status == dnnl_out_of_memory ? LS_ENOMEM : LS_ENOTSUP,
                        "oneDNN %d.%d: %s failed with status %d; check with ONEDNN_VERBOSE=1",
                        DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, call, (int)status);
}

struct ls_gemm_cache *gemm_cache_new(int threads)
{
    struct ls_gemm_cache *cache =
        calloc(1, sizeof *cache + (size_t)threads * sizeof cache->thread[0]);
    if (cache)
        cache->threads = threads;
    return cache;
}

static void entry_release(struct entry *entry)
{
    if (entry->scratch)
        dnnl_memory_destroy(entry->scratch);
    if (entry->c)
        dnnl_memory_destroy(entry->c);
    if (entry->b)
        dnnl_memory_destroy(entry->b);
    if (entry->a)
        dnnl_memory_destroy(entry->a);
    if (entry->primitive)
        dnnl_primitive_destroy(entry->primitive);
    *entry = (struct entry){0};
}

void gemm_cache_free(struct ls_gemm_cache *cache)
{
    for (int t = 0; cache && t < cache->threads; t++) {
        struct thread_cache *own = &cache->thread[t];
        for (size_t i = 0; i < own->capacity; i++)
            entry_release(&own->entries[i]);
        if (own->stream)
            dnnl_stream_destroy(own->stream);
        free(own->entries);
        free(own->scratch);
    }
    if (cache && cache->engine)
        dnnl_engine_destroy(cache->engine);
    free(cache);
}

/* ---- the instruction set --------------------------------------------------------------------- */

static dnnl_cpu_isa_t library_isa(enum ls_isa isa)
{
    switch (isa) {
    case LS_ISA_AVX2:
        return dnnl_cpu_isa_avx2;
    case LS_ISA_AVX512:
        return dnnl_cpu_isa_avx512_core;
    case LS_ISA_AVX512_BF16:
        return dnnl_cpu_isa_avx512_core_bf16;
    default:
        return dnnl_cpu_isa_all;
    }
}

/* The library's ceiling is the process's and is fixed at its first use. Where another one was set
 * before, products are only run if their bits are the same under it: float32 ones do not change
 * between the members of the AVX-512 family. */
static int limit_isa(enum ls_isa isa, enum ls_dtype in, struct ls_error *error)
{
    dnnl_cpu_isa_t wanted = library_isa(isa);
    dnnl_set_max_cpu_isa(wanted);
    dnnl_cpu_isa_t there = dnnl_get_effective_cpu_isa();
    bool wide = (there & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
    bool fits = in == LS_BF16 ? there == wanted : wide == (isa >= LS_ISA_AVX512);
    if (fits)
        return LS_OK;
    return ls_error_set(
        error, LS_ENOTSUP,
        "oneDNN runs with instruction set 0x%x in this process, which does not give "
        "the bits of %s: use one instruction set per process, and unset "
        "ONEDNN_MAX_CPU_ISA",
        (unsigned)there, ls_isa_name(isa));
}

int onednn_open(struct ls_ops *ops, enum ls_dtype in, struct ls_error *error)
{
    struct ls_gemm_cache *cache = ops->gemm;
    int code = limit_isa(ops->isa, in, error);
    if (code != LS_OK || cache->engine)
        return code;
    dnnl_status_t status = dnnl_engine_create(&cache->engine, dnnl_cpu, 0);
    if (status != dnnl_success)
        return library_error(error, "dnnl_engine_create", status);
    for (int t = 0; t < cache->threads; t++) {
        status =
            dnnl_stream_create(&cache->thread[t].stream, cache->engine, dnnl_stream_default_flags);
        if (status != dnnl_success)
            return library_error(error, "dnnl_stream_create", status);
    }
    return LS_OK;
}

/* ---- the cache ------------------------------------------------------------------------------- */

static struct entry *find(struct entry *entries, size_t capacity, const struct product *product)
{
    size_t i = ls_hash64(product, sizeof *product, 0) & (capacity - 1);
    while (entries[i].primitive && memcmp(&entries[i].product, product, sizeof *product) != 0)
        i = (i + 1) & (capacity - 1);
    return &entries[i];
}

static bool grow(struct thread_cache *own)
{
    size_t capacity = own->capacity ? own->capacity * 2 : 64;
    struct entry *entries = calloc(capacity, sizeof *entries);
    if (!entries)
        return false;
    for (size_t i = 0; i < own->capacity; i++)
        if (own->entries[i].primitive)
            *find(entries, capacity, &own->entries[i].product) = own->entries[i];
    free(own->entries);
    own->entries = entries;
    own->capacity = capacity;
    return true;
}

static dnnl_status_t describe(dnnl_memory_desc_t *desc, int64_t rows, int64_t columns, int64_t ld,
                              bool transposed, dnnl_data_type_t type)
{
    dnnl_dims_t sizes = {rows, columns};
    dnnl_dims_t strides = {transposed ? 1 : ld, transposed ? ld : 1};
    return dnnl_memory_desc_init_by_strides(desc, 2, sizes, type, strides);
}

static dnnl_status_t describe_product(const struct product *p, dnnl_memory_desc_t desc[3],
                                      dnnl_primitive_desc_t *out, dnnl_engine_t engine)
{
    dnnl_data_type_t type = p->bf16 ? dnnl_bf16 : dnnl_f32;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_status_t status = describe(&desc[0], p->m, p->k, p->lda, p->a_transposed, type);
    if (status == dnnl_success)
        status = describe(&desc[1], p->k, p->n, p->ldb, p->b_transposed, type);
    if (status == dnnl_success)
        status = describe(&desc[2], p->m, p->n, p->ldc, false, dnnl_f32);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], NULL, &desc[2]);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && p->add) {
        status = dnnl_post_ops_create(&sum);
        if (status == dnnl_success)
            status = dnnl_post_ops_append_sum(sum, 1.0f);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(attr, sum);
    }
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(out, &matmul, attr, engine, NULL);
    if (sum)
        dnnl_post_ops_destroy(sum);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t entry_init(struct entry *entry, const struct product *product,
                                dnnl_engine_t engine)
{
    dnnl_memory_desc_t desc[3];
    dnnl_primitive_desc_t primitive = NULL;
    *entry = (struct entry){.product = *product};
    dnnl_status_t status = describe_product(product, desc, &primitive, engine);
    if (status != dnnl_success)
        return status;
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(primitive, dnnl_query_scratchpad_md, 0);
    entry->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    status = dnnl_memory_create(&entry->a, &desc[0], engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl_memory_create(&entry->b, &desc[1], engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl_memory_create(&entry->c, &desc[2], engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl_memory_create(&entry->scratch, scratch, engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&entry->primitive, primitive);
    dnnl_primitive_desc_destroy(primitive);
    if (status != dnnl_success)
        entry_release(entry);
    return status;
}

/* The product's entry, made at its first use; NULL with *error filled. */
static struct entry *entry_of(struct ls_gemm_cache *cache, int thread,
                              const struct product *product, struct ls_error *error)
{
    struct thread_cache *own = &cache->thread[thread];
    if (own->count * 2 >= own->capacity && !grow(own)) {
        ls_error_set(error, LS_ENOMEM, "cannot allocate the cache of matrix products");
        return NULL;
    }
    struct entry *entry = find(own->entries, own->capacity, product);
    if (entry->primitive)
        return entry;
    dnnl_status_t status = entry_init(entry, product, cache->engine);
    if (status != dnnl_success) {
        library_error(error, "making a matrix product", status);
        return NULL;
    }
    if (own->scratch_bytes < entry->scratch_bytes) {
        size_t bytes = (size_t)ls_round_up((int64_t)entry->scratch_bytes, 4096);
        free(own->scratch);
        own->scratch = aligned_alloc(4096, bytes);
        own->scratch_bytes = own->scratch ? bytes : 0;
        if (!own->scratch) {
            entry_release(entry);
            ls_error_set(error, LS_ENOMEM, "cannot allocate %zu bytes for oneDNN", bytes);
            return NULL;
        }
    }
    own->count++;
    return entry;
}

int onednn_run(struct ls_ops *ops, int thread, const struct product *product, const void *a,
               const void *b, float *c, struct ls_error *error)
{
    struct thread_cache *own = &ops->gemm->thread[thread];
    /* The library's own threads are as many as the calling thread may start. */
    omp_set_num_threads(1);
    struct entry *entry = entry_of(ops->gemm, thread, product, error);
    if (!entry)
        return error ? error->code : LS_ENOMEM;
    /* The interface has no const; the operands are only read. */
    dnnl_memory_set_data_handle(entry->a, (void *)a);
    dnnl_memory_set_data_handle(entry->b, (void *)b);
    dnnl_memory_set_data_handle(entry->c, c);
    dnnl_memory_set_data_handle(entry->scratch, own->scratch);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, entry->a},
                              {DNNL_ARG_WEIGHTS, entry->b},
                              {DNNL_ARG_DST, entry->c},
                              {DNNL_ARG_SCRATCHPAD, entry->scratch}};
    dnnl_status_t status = dnnl_primitive_execute(entry->primitive, own->stream, 4, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(own->stream);
    return status == dnnl_success ? LS_OK : library_error(error, "dnnl_primitive_execute", status);
}
