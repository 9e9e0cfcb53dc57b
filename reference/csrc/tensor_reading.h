// Reads a Python tensor through DLPack's table of C functions, which its type offers: some 20 ns, where its attributes
// cost microseconds. Nothing of the tensor's library is linked. The layout of these structures is DLPack's, version 1.

#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace verispec {

namespace nb = nanobind;

struct DLTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
static_assert(sizeof(DLTensor) == 48);

constexpr int32_t kCpu = 1;

// The functions of one tensor type. They read the type's own instances alone: subclasses may behave otherwise.
class TensorReader {
 public:
  // False if the type offers no table that is known here.
  bool use(nb::handle type) {
    PyObject* capsule = PyObject_GetAttrString(type.ptr(), "__dlpack_c_exchange_api__");
    const auto* table =
        capsule ? static_cast<const Table*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api")) : nullptr;
    Py_XDECREF(capsule);
    if (!table || table->major != 1 || !table->read) {
      PyErr_Clear();
      return false;
    }
    type_ = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
    read_ = table->read;
    return true;
  }

  // False for anything but a strided tensor of the type.
  bool operator()(PyObject* value, DLTensor& tensor) const {
    if (Py_TYPE(value) != type_) return false;
    if (read_(value, &tensor)) {
      PyErr_Clear();
      return false;
    }
    return tensor.strides || tensor.ndim == 0;
  }

 private:
  struct Table {
    uint32_t major, minor;
    void* older;
    void *allocate, *export_managed, *import_managed;
    int (*read)(void*, DLTensor*);
    void* stream;
  };

  PyTypeObject* type_ = nullptr;
  int (*read_)(void*, DLTensor*) = nullptr;
};

inline char* address(const DLTensor& tensor) { return static_cast<char*>(tensor.data) + tensor.byte_offset; }

}  // namespace verispec
