/* What the machine can do: the rate of one large product by oneDNN. The only file that knows its
 * interface (2.x; Debian 12 has 2.6). */
#include <lockstep/base/meter.h>
#include <lockstep/ops.h>

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#if DNNL_VERSION_MAJOR != 2
#error "this file is written for oneDNN 2.x (Debian 12: libdnnl-dev 2.6); 3.x has other calls"
#endif

enum { EDGE = 2048, RUNS_LEAST = 4, RUNS_MAX = 12 };
static const double seconds_max = 0.15; /* runs stop here, after the least number of them */

struct yardstick {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3]; /* A [EDGE, EDGE], B stored transposed, C */
};

static dnnl_status_t memory_init(struct yardstick *y, int i, dnnl_memory_desc_t *desc,
                                 dnnl_data_type_t type)
{
    dnnl_dims_t sizes = {EDGE, EDGE};
    dnnl_status_t status =
        dnnl_memory_desc_init_by_tag(desc, 2, sizes, type, i == 1 ? dnnl_ba : dnnl_ab);
    if (status == dnnl_success)
        status = dnnl_memory_create(&y->memory[i], desc, y->engine, DNNL_MEMORY_ALLOCATE);
    void *data = NULL;
    if (status == dnnl_success)
        status = dnnl_memory_get_data_handle(y->memory[i], &data);
    if (status == dnnl_success)
        memset(data, 0, dnnl_memory_desc_get_size(desc));
    return status;
}

static dnnl_status_t yardstick_init(struct yardstick *y, dnnl_data_type_t type)
{
    dnnl_memory_desc_t desc[3];
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t primitive = NULL;
    dnnl_status_t status = dnnl_engine_create(&y->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&y->stream, y->engine, dnnl_stream_default_flags);
    for (int i = 0; i < 3 && status == dnnl_success; i++)
        status = memory_init(y, i, &desc[i], type);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], NULL, &desc[2]);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&primitive, &matmul, NULL, y->engine, NULL);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&y->primitive, primitive);
    if (primitive)
        dnnl_primitive_desc_destroy(primitive);
    return status;
}

static void yardstick_release(struct yardstick *y)
{
    if (y->primitive)
        dnnl_primitive_destroy(y->primitive);
    for (int i = 0; i < 3; i++)
        if (y->memory[i])
            dnnl_memory_destroy(y->memory[i]);
    if (y->stream)
        dnnl_stream_destroy(y->stream);
    if (y->engine)
        dnnl_engine_destroy(y->engine);
}

/* The fastest of some runs after one that warms up. */
static dnnl_status_t yardstick_measure(struct yardstick *y, double *seconds)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, y->memory[0]},
                              {DNNL_ARG_WEIGHTS, y->memory[1]},
                              {DNNL_ARG_DST, y->memory[2]}};
    double start = ls_now_s(), best = 0;
    for (int run = 0; run < RUNS_MAX && (run < RUNS_LEAST || ls_now_s() - start < seconds_max);
         run++) {
        double begin = ls_now_s();
        dnnl_status_t status = dnnl_primitive_execute(y->primitive, y->stream, 3, args);
        if (status == dnnl_success)
            status = dnnl_stream_wait(y->stream);
        if (status != dnnl_success)
            return status;
        ls_meter("products", ls_min(run + 1, RUNS_LEAST), RUNS_LEAST);
        double spent = ls_now_s() - begin;
        if (run == 1 || (run > 1 && spent < best))
            best = spent;
    }
    *seconds = best;
    return dnnl_success;
}

static dnnl_status_t rate_measure(int threads, dnnl_data_type_t type, double *flops_per_s)
{
    struct yardstick y = {0};
    double seconds = 1;
    int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    dnnl_status_t status = yardstick_init(&y, type);
    if (status == dnnl_success)
        status = yardstick_measure(&y, &seconds);
    omp_set_num_threads(before);
    yardstick_release(&y);
    if (status == dnnl_success)
        *flops_per_s = 2.0 * EDGE * EDGE * EDGE / seconds;
    return status;
}

/* Without instructions for bf16 its products are float32's, with conversions around them. */
static bool measures_f32(enum ls_dtype dtype)
{
    return dtype != LS_BF16 || ls_isa_best() < LS_ISA_AVX512_BF16;
}

size_t ls_gemm_peak_bytes(enum ls_dtype dtype)
{
    return (size_t)3 * EDGE * EDGE * ls_dtype_bytes(measures_f32(dtype) ? LS_F32 : dtype);
}

int ls_gemm_peak(struct ls_ops *ops, enum ls_dtype dtype, double *flops_per_s,
                 struct ls_error *error)
{
    if (!ls_is_act(dtype))
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm_peak: dtype is %s: expected F32, BF16 or F16",
                            ls_dtype_name(dtype));
    if (!dnnl_version())
        return ls_error_set(error, LS_ENOTSUP,
                            "oneDNN, which measures this machine's rate, cannot be loaded: install "
                            "libdnnl2, or set LOCKSTEP_PEAK_FLOPS to the rate, such as 2e11");
    dnnl_status_t status = dnnl_success;
    double bf16 = 0, f32 = 0;
    if (dtype == LS_BF16)
        status = rate_measure(ops->threads, dnnl_bf16, &bf16);
    if (status == dnnl_unimplemented)
        status = dnnl_success;
    if (status == dnnl_success && (bf16 <= 0 || measures_f32(dtype)))
        status = rate_measure(ops->threads, dnnl_f32, &f32);
    if (status != dnnl_success)
        return ls_error_set(error, status == dnnl_out_of_memory ? LS_ENOMEM : LS_ENOTSUP,
                            "oneDNN failed with status %d on one %d x %d product; run with "
                            "ONEDNN_VERBOSE=1 to see why",
                            (int)status, EDGE, EDGE);
    *flops_per_s = bf16 > f32 ? bf16 : f32;
    return LS_OK;
}

const char *ls_gemm_library(void)
{
#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(
        DNNL_VERSION_PATCH);
#undef TEXT
#undef TEXT_OF
}
