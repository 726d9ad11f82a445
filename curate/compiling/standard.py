"""Stand-ins for the standard headers that NVRTC does not ship, small enough to cost nothing.

NVRTC compiles device code alone and brings no C++ standard library; libcu++ would be one, but takes a second to read.
What kernels use of it is little: integer types, limits, mathematics. The rest (containers, streams, tuples) is left
undefined, and nvcc has to judge code that uses it.
"""

from __future__ import annotations

import re

__all__ = ["PREINCLUDED", "headers_for", "uses_more"]

PREINCLUDED = "cuset_standard"
"""The name under which the stand-in is included before every source."""

_HEADERS = (
    "algorithm array atomic bit bitset cassert cctype cerrno cfenv cfloat chrono cinttypes climits cmath complex"
    " concepts condition_variable csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime deque"
    " exception fstream functional future initializer_list iomanip ios iosfwd iostream istream iterator limits list map"
    " memory mutex new numbers numeric optional ostream queue random ratio set sstream stack stdexcept"
    " streambuf string string_view thread tuple type_traits typeinfo unordered_map unordered_set utility"
    " valarray variant vector"
    " assert.h ctype.h errno.h fenv.h float.h inttypes.h limits.h math.h stdarg.h stdbool.h stddef.h stdint.h"
    " stdio.h stdlib.h string.h time.h"
)
STANDARD_HEADERS = tuple(_HEADERS.split())
"""Given to NVRTC as empty files: what kernels need of them comes with the stand-in."""

_FLOATING = (
    "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor lgamma log log10 log1p log2"
    " nearbyint rint round sin sinh sqrt tan tanh tgamma trunc"
)
_FLOATING_2 = "atan2 copysign fdim fmax fmin fmod hypot nextafter remainder"
_TYPES = {
    "bool": ("false", "true", 1, 0),
    "char": ("-128", "127", 7, 2),
    "signed char": ("-128", "127", 7, 2),
    "unsigned char": ("0", "255", 8, 2),
    "short": ("-32768", "32767", 15, 4),
    "unsigned short": ("0", "65535", 16, 4),
    "int": ("INT_MIN", "INT_MAX", 31, 9),
    "unsigned int": ("0u", "UINT_MAX", 32, 9),
    "long": ("LONG_MIN", "LONG_MAX", 63, 18),
    "unsigned long": ("0ul", "ULONG_MAX", 64, 19),
    "long long": ("LLONG_MIN", "LLONG_MAX", 63, 18),
    "unsigned long long": ("0ull", "ULLONG_MAX", 64, 19),
}

_MACROS = """
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_RADIX 2
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN (-128)
#define CHAR_MAX 127
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295U
#define LONG_MAX 9223372036854775807L
#define LONG_MIN (-9223372036854775807L - 1L)
#define ULONG_MAX 18446744073709551615UL
#define LLONG_MAX 9223372036854775807LL
#define LLONG_MIN (-9223372036854775807LL - 1LL)
#define ULLONG_MAX 18446744073709551615ULL
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define UINT32_MAX UINT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define UINT64_MAX ULONG_MAX
#define SIZE_MAX ULONG_MAX
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fffffff)
#define HUGE_VALF INFINITY
#define HUGE_VAL __builtin_bit_cast(double, 0x7ff0000000000000ULL)
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef CUSET_INT64 int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned CUSET_INT64 uint64_t;
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;
typedef int64_t intmax_t;
typedef uint64_t uintmax_t;
#define CUSET_F __host__ __device__ __forceinline__
struct cuset_functor { template <class... A> __device__ float operator()(A...) const { return 1; } };
CUSET_F double pow(double a, float b) { return pow(a, (double)b); }
CUSET_F double pow(float a, double b) { return pow((double)a, b); }
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void cudaGridDependencySynchronize() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void cudaTriggerProgrammaticLaunchCompletion()
{ asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#endif
"""

_STD = """
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
using ::intptr_t; using ::uintptr_t;
typedef unsigned long size_t; typedef long ptrdiff_t; typedef decltype(nullptr) nullptr_t;
template <class T> CUSET_F constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> CUSET_F constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> CUSET_F constexpr const T& clamp(const T& v, const T& a, const T& b)
{ return v < a ? a : b < v ? b : v; }
template <class T> CUSET_F void swap(T& a, T& b) { T c = a; a = b; b = c; }
CUSET_F int abs(int x) { return ::abs(x); }
CUSET_F long abs(long x) { return x < 0 ? -x : x; }
CUSET_F long long abs(long long x) { return x < 0 ? -x : x; }
CUSET_F float abs(float x) { return ::fabsf(x); }
CUSET_F double abs(double x) { return ::fabs(x); }
CUSET_F float pow(float a, float b) { return ::powf(a, b); }
CUSET_F double pow(double a, double b) { return ::pow(a, b); }
CUSET_F double pow(float a, double b) { return ::pow((double)a, b); }
CUSET_F double pow(double a, float b) { return ::pow(a, (double)b); }
CUSET_F double pow(double a, int b) { return ::pow(a, (double)b); }
CUSET_F double pow(float a, int b) { return ::pow((double)a, (double)b); }
CUSET_F double pow(int a, int b) { return ::pow((double)a, (double)b); }
CUSET_F float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
CUSET_F double fma(double a, double b, double c) { return ::fma(a, b, c); }
CUSET_F bool isnan(float x) { return x != x; }
CUSET_F bool isnan(double x) { return x != x; }
CUSET_F bool isinf(float x) { return ::fabsf(x) == INFINITY; }
CUSET_F bool isinf(double x) { return ::fabs(x) == HUGE_VAL; }
CUSET_F bool isfinite(float x) { return ::fabsf(x) < INFINITY; }
CUSET_F bool isfinite(double x) { return ::fabs(x) < HUGE_VAL; }
template <class T, T V> struct integral_constant {
  static constexpr T value = V; using value_type = T; using type = integral_constant;
  CUSET_F constexpr operator T() const { return V; } CUSET_F constexpr T operator()() const { return V; } };
template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>; using false_type = bool_constant<false>;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T&> { using type = T; };
template <class T> struct remove_reference<T&&> { using type = T; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_cv { using type = T; };
template <class T> struct remove_cv<const T> { using type = T; };
template <class T> struct remove_cv<volatile T> { using type = T; };
template <class T> struct remove_cv<const volatile T> { using type = T; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using decay_t = remove_cv_t<remove_reference_t<T>>;
template <class T> struct is_floating_point
  : bool_constant<is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, double>> {};
template <class T> inline constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> struct cuset_integer : false_type {};
template <class T> struct is_integral : cuset_integer<remove_cv_t<T>> {};
template <class T> inline constexpr bool is_integral_v = is_integral<T>::value;
template <class T> struct numeric_limits { static constexpr bool is_specialized = false; };
"""


def _mathematics() -> str:
    lines = []
    for name in _FLOATING.split():
        lines.append(f"CUSET_F float {name}(float x) {{ return ::{name}f(x); }}")
        lines.append(f"CUSET_F double {name}(double x) {{ return ::{name}(x); }}")
        lines.append(
            f"template <class T> CUSET_F enable_if_t<is_integral_v<T>, double> {name}(T x)"
            f" {{ return ::{name}((double)x); }}"
        )
    for name in _FLOATING_2.split():
        lines.append(f"CUSET_F float {name}(float x, float y) {{ return ::{name}f(x, y); }}")
        lines.append(f"CUSET_F double {name}(double x, double y) {{ return ::{name}(x, y); }}")
    return "\n".join(lines)


def _limits() -> str:
    lines = []
    for name, (low, high, digits, digits10) in _TYPES.items():
        signed = str(low.startswith("-") or low.endswith("_MIN")).lower()
        lines.append(f"template <> struct cuset_integer<{name}> : true_type {{}};")
        lines.append(
            f"template <> struct numeric_limits<{name}> {{ static constexpr bool is_specialized = true;"
            f" static constexpr bool is_integer = true,"
            f" is_exact = true, is_signed = {signed}, has_infinity = false;"
            f" static constexpr int digits = {digits}, digits10 = {digits10}, radix = 2;"
            f" CUSET_F static constexpr {name} min() {{ return {low}; }}"
            f" CUSET_F static constexpr {name} max() {{ return {high}; }}"
            f" CUSET_F static constexpr {name} lowest() {{ return {low}; }} }};"
        )
    for name, prefix, infinity, nan in (
        ("float", "FLT", "INFINITY", "NAN"),
        ("double", "DBL", "HUGE_VAL", "__builtin_bit_cast(double, 0x7ff8000000000000ULL)"),
    ):
        lines.append(
            f"template <> struct numeric_limits<{name}> {{ static constexpr bool is_specialized = true;"
            f" static constexpr bool is_integer = false,"
            f" is_exact = false, is_signed = true, has_infinity = true, has_quiet_NaN = true;"
            f" static constexpr int digits = {prefix}_MANT_DIG, digits10 = {prefix}_DIG, radix = 2;"
            f" CUSET_F static constexpr {name} min() {{ return {prefix}_MIN; }}"
            f" CUSET_F static constexpr {name} max() {{ return {prefix}_MAX; }}"
            f" CUSET_F static constexpr {name} lowest() {{ return -{prefix}_MAX; }}"
            f" CUSET_F static constexpr {name} epsilon() {{ return {prefix}_EPSILON; }}"
            f" CUSET_F static constexpr {name} infinity() {{ return {infinity}; }}"
            f" CUSET_F static constexpr {name} quiet_NaN() {{ return {nan}; }} }};"
        )
    return "\n".join(lines)


_BODY = f"{_MACROS}\nnamespace std {{\n{_STD}\n{_limits()}\n{_mathematics()}\n}}\n"
_CUDA_H = """
typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
"""
_NVIDIA_HEADERS = re.compile(
    r'#[ \t]*include[ \t]*[<"](?:cuda/|cub/|thrust/|nv/|cooperative_groups|cuda_pipeline|cuda_awbarrier)'
)


def headers_for(code: str) -> dict[str, str]:
    """In-memory headers by name: the standard ones, and the driver's, which is host code but for one type.

    `int64_t` is `long`, as on CUDA's 64-bit Linux hosts (so `atomicAdd` on a `uint64_t` fails, as with nvcc), or `long
    long` beside those of NVIDIA's headers that define it so for NVRTC.
    """
    long = "long long" if _NVIDIA_HEADERS.search(code) else "long"
    stand_in = f"#pragma once\n#define CUSET_INT64 {long}\n{_BODY}"
    return {PREINCLUDED: stand_in, "cuda.h": _CUDA_H, **dict.fromkeys(STANDARD_HEADERS, "")}


_NAMES = frozenset(re.findall(r"\w+", _BODY)) | {"move", "forward", "initializer_list"}
_USED_STD = re.compile(r"\bstd::(\w+)|\b(?:thrust|cub)::")


def uses_more(code: str) -> bool:
    """Whether the code names something of `std`, thrust or cub that the stand-in does not define."""
    return any(found[1] not in _NAMES for found in _USED_STD.finditer(code))
