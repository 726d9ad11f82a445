// The columns of a sample, and equations (2) to (8) on them; the same figures as curate/weights.py. No page in here.
"use strict";

const IN_CODE = 8, STATEMENT = 16, CUDA = 32, LOCATION = 7;

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

// A float16 from its bits.
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// Confidence by the bits of a log-probability: the values that NumPy computed, so that no rounding differs.
function confidenceTable(data) {
  const bits = new Uint16Array(bytesOf(data.logprob_bits).buffer);
  const values = new Float64Array(bytesOf(data.confidences).buffer);
  const table = new Float64Array(65536).fill(NaN);
  bits.forEach((b, i) => { table[b] = values[i]; });
  return table;
}

// Kinds of columns: the lowest bytes of all values stand first, then the second ones; of Steps, from value to value.
const TYPES = { Steps: Int32Array, Int32: Int32Array, Uint16: Uint16Array, Uint8: Uint8Array };

// The columns of a sample as typed arrays, with `logp` and `confidence` where it is scored.
async function decodeSample(sample, table) {
  const packed = new Blob([bytesOf(sample.block)]).stream();
  const buffer = await new Response(packed.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const bytes = new Uint8Array(buffer), columns = { length: sample.tokens };
  let at = 0;
  for (const [name, kind, count] of sample.columns) {
    const made = new TYPES[kind](count), width = made.BYTES_PER_ELEMENT;
    for (let b = 0; b < width; b++) for (let i = 0; i < count; i++) made[i] |= bytes[at++] << (8 * b);
    if (kind === "Steps") for (let i = 1; i < count; i++) made[i] += made[i - 1];
    columns[name] = made;
  }
  if (columns.logprob) {
    columns.logp = Float64Array.from(columns.logprob, half);
    columns.confidence = Float64Array.from(columns.logprob, (bits) => table[bits]);
  }
  return columns;
}

// Mconf, Mcuda without lambda, and M of equations (2) to (4). Counts: [0, 1, lambda, 1 + lambda].
function maskOf(columns, tau, lambda) {
  const logTau = tau > 0 ? Math.fround(Math.log(tau)) : -Infinity;
  const n = columns.length, sure = new Uint8Array(n), cuda = new Uint8Array(n), counts = [0, 0, 0, 0];
  const weight = new Float32Array(n);
  let sum = 0;
  for (let t = 0; t < n; t++) {
    sure[t] = columns.logp[t] > logTau ? 1 : 0;
    cuda[t] = columns.flags[t] & CUDA ? 1 : 0;
    weight[t] = sure[t] + Math.fround(lambda) * cuda[t];
    sum += weight[t];
    counts[sure[t] + 2 * cuda[t]]++;
  }
  return { sure, cuda, weight, counts, sum };
}

// C_t of the tokens that a window can be centred on (NaN at the others), and the lowest: equations (5) to (8).
function windowsOf(columns, length, scope) {
  const n = columns.length;
  let chosen = [];
  if (scope !== "all") for (let t = 0; t < n; t++) if (columns.flags[t] & IN_CODE) chosen.push(t);
  if (!chosen.length) chosen = Array.from({ length: n }, (_, t) => t);
  const count = chosen.length, total = new Float64Array(count + 1);
  chosen.forEach((t, i) => { total[i + 1] = total[i] + columns.confidence[t]; });
  const anyCuda = scope === "cuda" && chosen.some((t) => columns.flags[t] & CUDA);
  const means = new Float64Array(n).fill(NaN);
  let lowest = null;
  for (let i = 0; i < count; i++) {
    const short = count < length;
    const start = short ? 0 : Math.max(0, i - Math.floor(length / 2));
    const end = short ? count : Math.min(count, i + Math.floor((length + 1) / 2));
    const mean = (total[end] - total[start]) / Math.max(end - start, 1);
    means[chosen[i]] = mean;
    const counted = !anyCuda || columns.flags[chosen[i]] & CUDA;
    if (counted && (lowest === null || mean < lowest.mean)) {
      lowest = { mean, centre: chosen[i], start: chosen[start], end: chosen[end - 1] };
    }
  }
  if (lowest) {
    lowest.mean = Math.min(Math.max(lowest.mean, 0), 1);
    lowest.weight = 1 - lowest.mean;
  }
  return { means, lowest };
}
