/**
 * The HTTP cases with the older uWebSockets.js, which servers load on platforms without their own
 * package.
 */

process.env.WEIR_TEST_UWS = 'uws-pack';
await import('../server/uws-behaviour.test.ts');
await import('../server/framing.test.ts');
await import('../server/connection.test.ts');
await import('../server/pipelining.test.ts');
await import('../server/head-method.test.ts');
await import('../server/listener.test.ts');
await import('../server/tls.test.ts');

export {};
