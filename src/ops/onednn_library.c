/* oneDNN, loaded when a process first measures with it: it takes 1.2 ms, more than a third of a
 * start of the program. What gemm_onednn.c calls is defined here, for this library alone.
 * dnnl_version gives NULL if oneDNN cannot be loaded; nothing else is called then. */
#include <lockstep/base/lazy_library.h>

#include <oneapi/dnnl/dnnl.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

static struct ls_lazy_library library = {.names = {"libdnnl.so." TEXT(DNNL_VERSION_MAJOR)}};

LS_LAZY_HIDDEN const dnnl_version_t *dnnl_version(void)
{
    __typeof__(&dnnl_version) real = (__typeof__(real))ls_lazy_symbol(&library, __func__);
    return real ? real() : NULL;
}

LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_engine_create,
                (dnnl_engine_t * engine, dnnl_engine_kind_t kind, size_t index), engine, kind,
                index)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_engine_destroy, (dnnl_engine_t engine), engine)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_stream_create,
                (dnnl_stream_t * stream, dnnl_engine_t engine, unsigned flags), stream, engine,
                flags)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_stream_wait, (dnnl_stream_t stream), stream)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_stream_destroy, (dnnl_stream_t stream), stream)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_memory_desc_init_by_tag,
                (dnnl_memory_desc_t * desc, int ndims, const dnnl_dims_t dims,
                 dnnl_data_type_t type, dnnl_format_tag_t tag),
                desc, ndims, dims, type, tag)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_memory_create,
                (dnnl_memory_t * memory, const dnnl_memory_desc_t *desc, dnnl_engine_t engine,
                 void *data),
                memory, desc, engine, data)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_memory_get_data_handle,
                (const_dnnl_memory_t memory, void **data), memory, data)
LS_LAZY_FORWARD(&library, size_t, dnnl_memory_desc_get_size, (const dnnl_memory_desc_t *desc), desc)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_memory_destroy, (dnnl_memory_t memory), memory)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_matmul_desc_init,
                (dnnl_matmul_desc_t * desc, const dnnl_memory_desc_t *a,
                 const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *bias,
                 const dnnl_memory_desc_t *c),
                desc, a, b, bias, c)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_primitive_desc_create,
                (dnnl_primitive_desc_t * desc, const_dnnl_op_desc_t op,
                 const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                 const_dnnl_primitive_desc_t hint),
                desc, op, attr, engine, hint)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_primitive_desc_destroy, (dnnl_primitive_desc_t desc),
                desc)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_primitive_create,
                (dnnl_primitive_t * primitive, const_dnnl_primitive_desc_t desc), primitive, desc)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_primitive_execute,
                (const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                 const dnnl_exec_arg_t *args),
                primitive, stream, count, args)
LS_LAZY_FORWARD(&library, dnnl_status_t, dnnl_primitive_destroy, (dnnl_primitive_t primitive),
                primitive)
