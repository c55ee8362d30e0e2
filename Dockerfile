# The image of weir: Node, the libraries that Node needs, and the npm package, without a shell.
# docs/containers.md explains how to build and run it.
#
# amd64 has Node 24 on Debian 13. arm64 has Node 22 on Debian 12, the newest Node for which there
# is a binary of uWebSockets.js: that of the package uws-pack.

ARG BUILDPLATFORM
ARG TARGETARCH

FROM --platform=linux/amd64 node:24-trixie-slim AS node-amd64
FROM --platform=linux/arm64 node:22-bookworm-slim AS node-arm64

# The package as npm publishes it. It is the same for every platform.
FROM --platform=$BUILDPLATFORM node:24-trixie-slim AS package
WORKDIR /build
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
RUN npm pack

FROM node-${TARGETARCH} AS files
WORKDIR /opt/weir
COPY --from=package /build/*.tgz /build/package-lock.json /tmp/
RUN tar xzf /tmp/*.tgz --strip-components=1 --no-same-owner \
  && cp /tmp/package-lock.json . \
  && npm ci --omit=dev --ignore-scripts --no-audit --no-fund \
  # Debian has glibc. Node could load these too.
  && rm -r node_modules/@libsql/*-musl \
  # Native binaries of other platforms and Node versions, which this Node cannot load.
  && find node_modules -name '*.node' -exec node -e \
    'try { process.dlopen(module, process.argv[1]) } catch { fs.rmSync(process.argv[1]) }' {} \; \
  && find node_modules \( -name '*.d.ts' -o -name '*.map' -o -path '*/test/*' -o -path '*/docs/*' \) -delete \
  # The image has no /usr/bin/env.
  && sed -i '1s|.*|#!/usr/local/bin/node|' dist/cli.js
# The root of the image. Node links to these libraries, and its native packages to some of them.
WORKDIR /image
RUN mkdir -p etc opt run usr/local/bin /volume/weir \
  && find /usr/local/bin/node /opt/weir -name node -o -name '*.node' | xargs ldd \
    | grep -o '/[^ ]*\.so[^ ]*' | sort -u | xargs cp -L --parents -t . \
  && cp --parents /usr/local/bin/node . \
  # Licences of Node, and of Debian's libraries.
  && cp -L --parents /usr/local/LICENSE /usr/share/doc/libc6/copyright \
    /usr/share/doc/libstdc++6/copyright /usr/share/common-licenses/GPL-3 \
    /usr/share/common-licenses/LGPL-2.1 . \
  && cp -r /opt/weir opt/ \
  && ln -s /opt/weir/dist/cli.js usr/local/bin/weir \
  && echo 'weir:x:10001:10001::/var/lib/weir:/sbin/nologin' > etc/passwd \
  && echo 'weir:x:10001:' > etc/group \
  && echo 'hosts: files dns' > etc/nsswitch.conf

FROM scratch
ARG VERSION REVISION SOURCE
LABEL org.opencontainers.image.title=weir \
  org.opencontainers.image.description="A rate limiting sidecar" \
  org.opencontainers.image.licenses=Apache-2.0 \
  org.opencontainers.image.version=$VERSION \
  org.opencontainers.image.revision=$REVISION \
  org.opencontainers.image.source=$SOURCE
COPY --from=files /image /
# The volume for data, and a directory for Unix sockets, which may be a volume too.
COPY --from=files --chown=10001:10001 /volume /var/lib
COPY --from=files --chown=10001:10001 /volume /run
ENV PATH=/usr/local/bin \
  WEIR_HOST=0.0.0.0 \
  WEIR_ADMIN_HOST=0.0.0.0 \
  WEIR_DATA_DIR=/var/lib/weir/data
USER 10001:10001
WORKDIR /var/lib/weir
VOLUME /var/lib/weir
EXPOSE 7070 7071
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["weir", "health"]
ENTRYPOINT ["weir"]
CMD ["serve"]
