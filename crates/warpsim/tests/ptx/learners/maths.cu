// Functions of the maths library, text, clocks, bytes in words, bits.
extern "C" __global__ void doubles(const double* x, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i]; double* o = out + i * 24;
    o[0] = sin(v); o[1] = cos(v); o[2] = tan(v); o[3] = exp(v); o[4] = log(fabs(v) + 1); o[5] = pow(fabs(v) + .5, 1.7);
    o[6] = tgamma(fabs(v) + 1); o[7] = lgamma(fabs(v) + 1); o[8] = erf(v); o[9] = cbrt(v); o[10] = atan2(v, 2.0); o[11] = asin(v / 1000);
    o[12] = sinh(v / 10); o[13] = log10(fabs(v) + 1); o[14] = exp2(v / 10); o[15] = fmod(v, 0.7); o[16] = hypot(v, 3.0); o[17] = log1p(fabs(v));
    o[18] = round(v); o[19] = remainder(v, 1.3); o[20] = rsqrt(fabs(v) + 1); o[21] = expm1(v / 100); o[22] = nextafter(v, 1e9); o[23] = ldexp(v, 3) + ilogb(v);
}
extern "C" __global__ void singles(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i]; float* o = out + i * 24;
    o[0] = sinf(v); o[1] = cosf(v); o[2] = tanf(v); o[3] = expf(v); o[4] = logf(fabsf(v) + 1); o[5] = powf(fabsf(v) + .5f, 1.7f);
    o[6] = tgammaf(fabsf(v) + 1); o[7] = lgammaf(fabsf(v) + 1); o[8] = erff(v); o[9] = cbrtf(v); o[10] = atan2f(v, 2.0f); o[11] = asinf(v / 1000);
    o[12] = sinhf(v / 10); o[13] = log10f(fabsf(v) + 1); o[14] = exp2f(v / 10); o[15] = fmodf(v, 0.7f); o[16] = hypotf(v, 3.0f); o[17] = log1pf(fabsf(v));
    o[18] = roundf(v); o[19] = remainderf(v, 1.3f); o[20] = rsqrtf(fabsf(v) + 1); o[21] = expm1f(v / 100); o[22] = sinpif(v); o[23] = ldexpf(v, 3) + ilogbf(v);
}
extern "C" __global__ void text(const double* x, int n) {
    int i = threadIdx.x;
    if (i < n) printf("%d %5d|%-5d|%05d %x %X %o %c %s %u %lld %llu %f %.3f %e %g %p %% %hd %+d %zu\n", i, i, i, i, i + 255, i + 255, i, 'a' + i, i & 1 ? "odd" : "even", (unsigned)-i, -5000000000ll * i, 1ull << (40 + i), x[i], x[i], x[i], x[i], (void*)0, (short)-i, i, sizeof(int));
}
extern "C" __global__ void timed(long long* out, int n) {
    long long t = clock64(); int c = clock();
    long long g; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(g));
    int s = 0; for (int i = 0; i < n; i++) s += i * s + 1;
    __nanosleep(100);
    out[threadIdx.x] = s;
    unsigned sm, w, nw, gid; unsigned long long gg;
    asm("mov.u32 %0, %smid;" : "=r"(sm)); asm("mov.u32 %0, %warpid;" : "=r"(w)); asm("mov.u32 %0, %nsmid;" : "=r"(nw)); asm("mov.u32 %0, %lanemask_lt;" : "=r"(gid)); asm("mov.u64 %0, %gridid;" : "=l"(gg));
    out[32 + threadIdx.x] = clock64() - t >= 0 && g > 0 && sm < nw && c == c;
    out[64 + threadIdx.x] = gid + w;
}
extern "C" __global__ void lambdas(float* out, int n) {
    auto f = [=](float x) { return x * n + 1; };
    float acc = 0; for (int i = 0; i < n; i++) acc = f(acc); out[threadIdx.x] = acc;
}
extern "C" __global__ void packed(const uchar4* in, uchar4* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uchar4 p = in[i]; unsigned char g = (p.x * 77 + p.y * 150 + p.z * 29) >> 8;
    out[i] = make_uchar4(g, g, g, p.w);
    short2 s = make_short2(p.x, -p.y); out[i].w = __vadd4(p.x, p.y) + __vabsdiffu4(p.z, p.w) + __sad(p.x, p.y, s.x) + __usad(p.x,p.y,3);
}
extern "C" __global__ void bits(const unsigned* in, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = in[i]; unsigned long long y = (unsigned long long)x << 17 | x;
    out[i] = __popc(x) + __clz(x) + __ffs(x) + __brev(x) + __popcll(y) + __clzll(y) + __ffsll(y) + (unsigned)__brevll(y) + __funnelshift_r(x, ~x, 9) + __byte_perm(x, ~x, 0x2461) + __rhadd(x, 5) + __hadd((int)x, 7) + __umul24(x, 3) + __mulhi((int)x, 17) + __fns(x, 0, 3);
}
