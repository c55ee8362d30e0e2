/**
 * Preloaded into a server: hides the platform packages of uWebSockets.js. The server then loads
 * `uws-pack`, as it does on a platform without a package of its own.
 */

const Module = require('node:module');

const resolve = Module._resolveFilename;
Module._resolveFilename = function (request, ...rest) {
  if (!request.startsWith('@uwsjs/')) return resolve.call(this, request, ...rest);
  throw Object.assign(new Error(`Cannot find module '${request}'`), { code: 'MODULE_NOT_FOUND' });
};
