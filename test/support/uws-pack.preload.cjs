/**
 * Preloaded into a server: hides the platform packages of uWebSockets.js, so that it loads
 * `uws-pack`, as on a platform that has no package of its own.
 */

const Module = require('node:module');

const resolve = Module._resolveFilename;
Module._resolveFilename = function (request, ...rest) {
  if (!request.startsWith('@uwsjs/')) return resolve.call(this, request, ...rest);
  throw Object.assign(new Error(`Cannot find module '${request}'`), { code: 'MODULE_NOT_FOUND' });
};
