/**
 * Loads installed CommonJS packages, by `require`. `import` works too, but Node 22 first searches
 * such a package's files for the names they export, in JavaScript that V8 then optimizes. This
 * left a started server with 12 MiB more resident memory, which a memory limit of 128 MiB does not
 * have.
 */

import { createRequire } from 'node:module';

interface Packages {
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
