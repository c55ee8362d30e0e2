/**
 * Loads installed CommonJS packages by `require`. With `import`, Node 22 first searches the files
 * of such a package for the names they export, in JavaScript that V8 then optimizes on several
 * threads. The memory that this leaves behind, 12 MiB, is too much for a server under a memory
 * limit of 128 MiB.
 */

import { createRequire } from 'node:module';

interface Packages {
  '@redis/client': typeof import('@redis/client');
  'jsonc-parser': typeof import('jsonc-parser');
  libsql: typeof import('libsql');
  pino: typeof import('pino');
  piscina: typeof import('piscina');
  'prom-client': typeof import('prom-client');
}

const require = createRequire(import.meta.url);

export function requirePackage<Name extends keyof Packages>(name: Name): Packages[Name] {
  return require(name);
}
