// CheckedOp: an op as callers see it. A call whose layout was checked before goes straight to the kernel; any other
// takes the check in Python, which raises the errors and then may teach the layout.
//
// A layout is everything that decides if a call fits the contract except addresses and the values of counts: dtypes,
// shapes, strides and devices of tensors, and the scalars. Addresses and counts are looked at in every call. All of
// this happens with the GIL held, and nothing in it runs Python code.

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops.h"
#include "tensor.h"
#include "tensor_reading.h"

#include <structmember.h>  // after Python.h

namespace verispec {
namespace {

constexpr size_t kMostParameters = 32;
constexpr size_t kMostKnown = 256;
constexpr uintptr_t kAlignment = 16;
// The first byte of each parameter's part of a layout, which tells how long it is.
enum Tag : char { kNone, kOmitted, kFalse, kTrue, kInteger, kFloat, kTensor };

TensorReader read_tensor;

bool type_of(const DLTensor& tensor, Type& type) {
  struct Known {
    uint8_t code, bits;
    Type type;
  };
  constexpr Known known[] = {{0, 32, Type::int32},   {0, 64, Type::int64},    {2, 16, Type::float16},
                             {2, 32, Type::float32}, {2, 64, Type::float64}, {4, 16, Type::bfloat16},
                             {6, 8, Type::boolean}};
  for (const Known& k : known) {
    if (k.code == tensor.code && k.bits == tensor.bits && tensor.lanes == 1) {
      type = k.type;
      return true;
    }
  }
  return false;
}

struct Parameter {
  PyObject* name;
  PyObject* fallback;  // null: callers must give a value
  bool is_tensor, is_passed;
};

// The bytes of a tensor relative to its first element.
struct Reach {
  size_t parameter;
  int64_t low, high;
};

// The first `used` values of a tensor never decrease, from 0 to `limit` in steps of at most `step`.
struct Counts {
  size_t parameter;
  int64_t used, step, limit;
};

struct Layout {
  std::vector<nb::object> scalars;  // as the kernel takes them; for tensors null
  std::vector<Reach> reach;
  std::vector<Counts> counts;
  nb::object launch;  // instead of a kernel of the extension: called with addresses
};

using Values = std::array<PyObject*, kMostParameters>;

struct State {
  nb::object check, kernel, relaunch, omitted;
  std::vector<Parameter> parameters;
  std::unordered_map<std::string, Layout> known;
  std::string key, last_key;
  const Layout* last = nullptr;
  // Tensors of the call and the capsules that hand them to the kernel, which copies them before it lets other
  // threads run.
  std::array<Tensor, kMostParameters> tensors;
  std::vector<nb::object> capsules;

  // Callers mostly give parameters in their order, and the same string objects: `expected` is the first guess.
  size_t index_of(PyObject* name, size_t expected = 0) const {
    for (size_t i = expected; i < parameters.size(); ++i) {
      if (parameters[i].name == name) return i;
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (PyUnicode_Compare(parameters[i].name, name) == 0) return i;
    }
    return parameters.size();
  }

  // Sets the value of a named parameter; returns the place after it, or 0 for one that is unknown or given twice.
  size_t give(PyObject* name, PyObject* value, Values& values, size_t expected) const {
    const size_t i = index_of(name, expected);
    if (i == parameters.size() || values[i]) return 0;
    values[i] = value;
    return i + 1;
  }

  bool fill(Values& values) const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!values[i] && !(values[i] = parameters[i].fallback)) return false;
    }
    return true;
  }

  template <class T>
  void put(const T& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  // Writes the layout to `key` and the tensors to `tensors`; false for values that are not compared.
  bool describe(const Values& values) {
    key.clear();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (values[i] == Py_None) {
        put(kNone);
      } else if (!(parameters[i].is_tensor ? put_tensor(i, values[i]) : put_scalar(values[i]))) {
        return false;
      }
    }
    return true;
  }

  bool put_scalar(PyObject* value) {
    if (value == omitted.ptr()) {
      put(kOmitted);
    } else if (PyBool_Check(value)) {
      put(value == Py_True ? kTrue : kFalse);
    } else if (PyLong_CheckExact(value)) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
      if (overflow) return false;
      put(kInteger);
      put(number);
    } else if (PyFloat_CheckExact(value)) {
      put(kFloat);
      put(PyFloat_AS_DOUBLE(value));
    } else {
      return false;
    }
    return true;
  }

  bool put_tensor(size_t i, PyObject* value) {
    DLTensor given;
    Tensor& tensor = tensors[i];
    if (!read_tensor(value, given) || given.ndim < 1 || given.ndim > 3 || !type_of(given, tensor.type)) return false;
    tensor.data = address(given);
    put(kTensor);
    put(static_cast<char>(given.ndim));
    put(tensor.type);
    put(given.device_type);
    put(given.device_id);
    // A launch is compiled for the alignment of its addresses.
    if (kernel.is_none()) put(static_cast<char>(reinterpret_cast<uintptr_t>(tensor.data) % kAlignment == 0));
    for (int32_t d = 0; d < 3; ++d) {
      tensor.shape[d] = d < given.ndim ? given.shape[d] : 1;
      tensor.stride[d] = d < given.ndim ? given.strides[d] : 0;
    }
    for (int32_t d = 0; d < given.ndim; ++d) {
      put(given.shape[d]);
      put(given.strides[d]);
    }
    return true;
  }

  const Layout* find() {
    if (last && key == last_key) return last;
    const auto found = known.find(key);
    if (found == known.end()) return nullptr;
    last_key = key;
    return last = &found->second;
  }

  bool is_apart(const Layout& layout) const {
    std::array<std::pair<int64_t, int64_t>, kMostParameters> sorted;
    size_t n = 0;
    for (const Reach& reach : layout.reach) {
      const auto data = reinterpret_cast<int64_t>(tensors[reach.parameter].data);
      const std::pair<int64_t, int64_t> bytes{data + reach.low, data + reach.high};
      size_t at = n++;
      for (; at > 0 && bytes < sorted[at - 1]; --at) sorted[at] = sorted[at - 1];
      sorted[at] = bytes;
    }
    for (size_t i = 1; i < n; ++i) {
      if (sorted[i].first < sorted[i - 1].second) return false;
    }
    return true;
  }

  bool rises(const Counts& counts) const {
    const Integers values(tensors[counts.parameter]);
    int64_t before = 0;
    for (int64_t i = 0; i < counts.used; ++i) {
      const int64_t value = values.get(i);
      if (value < before || value - before > counts.step) return false;
      before = value;
    }
    return before <= counts.limit;
  }

  // The layout of a call that needs no check, null for any other.
  const Layout* known_layout(const Values& values) {
    if (!describe(values)) return nullptr;
    const Layout* layout = find();
    if (!layout || !is_apart(*layout)) return nullptr;
    for (const Counts& counts : layout->counts) {
      if (!rises(counts)) return nullptr;
    }
    return layout;
  }

  PyObject* run(const Values& values, const Layout& layout) const {
    Values passed;
    size_t n = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].is_passed) continue;
      PyObject* tensor = values[i] == Py_None ? Py_None : capsules[i].ptr();
      passed[n++] = parameters[i].is_tensor ? tensor : layout.scalars[i].ptr();
    }
    return PyObject_Vectorcall(kernel.ptr(), passed.data(), n, nullptr);
  }

  // Null without an exception if the launch returned False, because it cannot stand for this call.
  PyObject* launch(const Values& values, const Layout& layout) const {
    nb::object addresses = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(parameters.size())));
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool has_address = parameters[i].is_tensor && values[i] != Py_None;
      PyObject* item = has_address ? PyLong_FromVoidPtr(tensors[i].data) : Py_NewRef(values[i]);
      PyTuple_SET_ITEM(addresses.ptr(), static_cast<Py_ssize_t>(i), item);
    }
    const nb::object function = layout.launch;  // what it runs may forget the layout
    PyObject* result = PyObject_CallOneArg(function.ptr(), addresses.ptr());
    if (result != Py_False) return result;
    Py_DECREF(result);
    return nullptr;
  }
};

struct CheckedOp {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* attributes;
  State* state;
};

PyObject* call(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  State& state = *reinterpret_cast<CheckedOp*>(self)->state;
  const size_t count = PyVectorcall_NARGS(flags), named = names ? PyTuple_GET_SIZE(names) : 0;
  Values values{};
  bool fits = count <= state.parameters.size();
  for (size_t i = 0; fits && i < count; ++i) values[i] = args[i];
  size_t next = count;
  for (size_t i = 0; fits && i < named; ++i) {
    next = state.give(PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)), args[count + i], values, next);
    fits = next != 0;
  }
  const Layout* layout = fits && state.fill(values) ? state.known_layout(values) : nullptr;
  if (!layout) return PyObject_Vectorcall(state.check.ptr(), args, flags, names);
  if (!state.kernel.is_none()) return state.run(values, *layout);
  if (!layout->launch.is_none()) {
    PyObject* result = state.launch(values, *layout);
    if (result || PyErr_Occurred()) return result;
  }
  return PyObject_Vectorcall(state.relaunch.ptr(), args, flags, names);
}

State& state_of(nb::handle op) { return *reinterpret_cast<CheckedOp*>(op.ptr())->state; }

// Teaches an op the layout of a call that passed its check.
void learn(nb::handle op, nb::tuple args, nb::dict kwargs, nb::dict scalars, nb::list reach, nb::list counts,
           nb::object launch) {
  State& state = state_of(op);
  Values values{};
  for (size_t i = 0; i < args.size(); ++i) values[i] = args[i].ptr();
  for (const auto& [name, value] : kwargs) {
    if (!state.give(name.ptr(), value.ptr(), values, 0)) return;
  }
  if (!state.fill(values) || !state.describe(values)) return;
  Layout layout;
  layout.launch = launch;
  for (const Parameter& p : state.parameters) {
    const nb::handle name(p.name);
    layout.scalars.push_back(scalars.contains(name) ? nb::object(scalars[name]) : nb::object());
  }
  for (nb::handle entry : reach) {
    layout.reach.push_back({state.index_of(nb::object(entry[0]).ptr()), nb::cast<int64_t>(entry[1]),
                            nb::cast<int64_t>(entry[2])});
  }
  for (nb::handle entry : counts) {
    layout.counts.push_back({state.index_of(nb::object(entry[0]).ptr()), nb::cast<int64_t>(entry[1]),
                             nb::cast<int64_t>(entry[2]), nb::cast<int64_t>(entry[3])});
  }
  state.last = nullptr;
  if (state.known.size() == kMostKnown) state.known.clear();
  state.known.insert_or_assign(state.key, std::move(layout));
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *check = nullptr, *kernel = nullptr, *relaunch = nullptr, *omitted = nullptr, *parameters = nullptr;
  if (!PyArg_ParseTuple(args, "OOOOO!", &check, &kernel, &relaunch, &omitted, &PyTuple_Type, &parameters)) {
    return nullptr;
  }
  if (static_cast<size_t>(PyTuple_GET_SIZE(parameters)) > kMostParameters) {
    return PyErr_Format(PyExc_ValueError, "more than %zu parameters", kMostParameters);
  }
  auto state = std::make_unique<State>();
  state->check = nb::borrow(check);
  state->kernel = nb::borrow(kernel);
  state->relaunch = nb::borrow(relaunch);
  state->omitted = nb::borrow(omitted);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parameters); ++i) {
    PyObject *name = nullptr, *fallback = nullptr;
    int is_tensor = 0, is_passed = 0, is_required = 0;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(parameters, i), "UOppp", &name, &fallback, &is_required, &is_tensor,
                          &is_passed)) {
      return nullptr;
    }
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    state->parameters.push_back({name, is_required ? nullptr : Py_NewRef(fallback), is_tensor != 0, is_passed != 0});
    state->capsules.push_back(nb::steal(PyCapsule_New(&state->tensors[static_cast<size_t>(i)], kTensorCapsule,
                                                      nullptr)));
  }
  auto* self = PyObject_New(CheckedOp, type);
  if (!self) return nullptr;
  self->call = &call;
  self->attributes = nullptr;
  self->state = state.release();
  return reinterpret_cast<PyObject*>(self);
}

void forget(PyObject* self) {
  auto* op = reinterpret_cast<CheckedOp*>(self);
  PyTypeObject* type = Py_TYPE(self);
  for (const Parameter& p : op->state->parameters) {
    Py_DECREF(p.name);
    Py_XDECREF(p.fallback);
  }
  delete op->state;
  Py_XDECREF(op->attributes);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CheckedOp, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(CheckedOp, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef getters[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(&make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&forget)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {Py_tp_members, members},
    {Py_tp_getset, getters},
    {0, nullptr},
};

PyType_Spec spec{"verispec.reference._csrc.CheckedOp", sizeof(CheckedOp), 0,
                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};

// The address, dtype, shape, strides and device of a tensor; None for values that are not read.
nb::object reading(nb::handle value) {
  DLTensor tensor;
  if (!read_tensor(value.ptr(), tensor)) return nb::none();
  nb::list shape, strides;
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    shape.append(tensor.shape[d]);
    strides.append(tensor.strides[d]);
  }
  return nb::make_tuple(reinterpret_cast<uintptr_t>(address(tensor)),
                        nb::make_tuple(tensor.code, tensor.bits, tensor.lanes), nb::tuple(shape), nb::tuple(strides),
                        nb::make_tuple(tensor.device_type, tensor.device_id));
}

}  // namespace

const Registration registration([](nb::module_& m) {
  m.attr("CheckedOp") = nb::steal(PyType_FromSpec(&spec));
  m.def("learn", &learn, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def("read_tensors_of", [](nb::handle type) { return read_tensor.use(type); });
  m.def("reading", &reading);
});

}  // namespace verispec
