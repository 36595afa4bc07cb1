# Everything that a fresh machine needs is set up here; nothing else comes before `make demo` or `make test`.

CARGO ?= cargo
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
# Where the library is in no place that the loader knows, programs find it by a path of their own.
RPATH = $(if $(filter /usr/lib /usr/local/lib,$(LIBDIR)),, -Wl$(comma)-rpath$(comma)$(LIBDIR))
comma := ,
PROFILE ?= release
STATIC_TARGET := $(shell uname -m)-unknown-linux-gnu
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
REPOSITORY := https://github.com/polypath/polypath/blob/main
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Debian packages for tests: tshark reads our traces; the others set up namespaces, or are the peers that tests and
# benchmarks compare with. A test whose program is missing says so and is skipped.
APT_PACKAGES := tshark nftables iptables iproute2 ethtool iperf3 nginx-light mptcpize curl rsync openssh-server openssh-client prometheus \
  libnginx-mod-stream haproxy squid dante-server microsocks netcat-openbsd
PROGRAMS := tshark nft iptables ip ethtool iperf3 mptcpize curl rsync ssh sshd prometheus promtool haproxy squid danted microsocks nc

.PHONY: help demo pictures test check lint doc bench interop lab lab-full behaviour soak fuzz deny msrv package guide results weight install install-built uninstall deb static dist package-test setup setup-packages setup-tunnels

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: setup ## Send a file over two emulated access links, cut one, and write polypath-demo.html
	$(CARGO) run --profile release-fast -p polypath-cli --no-default-features -- demo

pictures: setup ## Make README's picture with the demo, in virtual time (needs chromium)
	@command -v chromium >/dev/null || { \
	  echo "polypath: chromium is missing, which makes PNG of SVG; install it (apt-get install chromium)" >&2; exit 1; }
	mkdir -p $(TARGET)/pictures
	$(CARGO) run --profile release-fast -p polypath-cli --no-default-features -- demo --virtual \
	  --report $(TARGET)/pictures/demo.html --picture $(TARGET)/pictures/demo.svg
	size=$$(sed -n '1s/.* width="\([0-9]*\)" height="\([0-9]*\)".*/\1,\2/p' $(TARGET)/pictures/demo.svg) && \
	chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
	  --disable-component-update --disable-sync --hide-scrollbars --user-data-dir=$(abspath $(TARGET))/pictures/chromium \
	  --window-size=$$size --screenshot=docs/images/demo.png file://$(abspath $(TARGET))/pictures/demo.svg

test: setup setup-packages ## Run all tests: units, properties, scenarios, middleboxes, 500 soak seeds, oracle
	$(CARGO) test --workspace --no-fail-fast
	$(CARGO) test --manifest-path examples/policies/Cargo.toml --target-dir $(TARGET)

check: lint doc test ## Formatting, clippy, documentation and all tests; .ci/run is what CI runs

lint: setup ## Formatting and clippy, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) clippy -p polypath-cli --no-default-features --quiet -- -D warnings
	$(CARGO) clippy -p polypath --no-default-features --quiet -- -D warnings
	$(CARGO) clippy -p polypath --all-features --quiet -- -D warnings
	$(CARGO) fmt --all --check --manifest-path examples/policies/Cargo.toml
	$(CARGO) clippy --all-targets --quiet --manifest-path examples/policies/Cargo.toml --target-dir $(TARGET) -- -D warnings

doc: setup ## Documentation, broken links denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

bench: setup ## Speed, middleboxes and memory, as the documentation states them
	$(CARGO) run --release --quiet -p polypath-cli -- bench sim --json
	$(CARGO) run --release --quiet -p polypath-cli -- bench sim --connections 10 --json
	$(CARGO) run --release --quiet -p polypath-cli -- bench middleboxes --json
	$(CARGO) run --release --quiet -p polypath-cli -- bench state --json

lab: setup ## All experiments in their reduced form, with a report each, in results/
	for file in experiments/*.toml; do $(CARGO) run --release --quiet -p polypath-cli -- lab run $$file || exit 1; done

lab-full: setup ## All experiments in the size of the documents
	for file in experiments/*.toml; do $(CARGO) run --release --quiet -p polypath-cli -- lab run $$file --full || exit 1; done

interop: setup setup-packages ## Our stack against the kernel's Multipath TCP, the long scenarios too (root)
	$(CARGO) test -p polypath-cli --test interop -- --include-ignored --nocapture
	$(CARGO) test -p polypath-capi --test c_programs -- --ignored

deny: setup ## Licences, sources and advisories of dependencies
	.ci/deny

msrv: setup ## Does the oldest compiler that Cargo.toml names build it?
	.ci/msrv

package: setup ## Every crate as a package, built from that
	.ci/package

guide: ## The guide as pages of HTML, in docs/guide/book (needs mdbook: cargo install mdbook)
	@command -v mdbook >/dev/null || { \
	  echo "polypath: mdbook is missing; install it with: cargo install mdbook" >&2; exit 1; }
	mdbook build docs/guide
	@# What is beside the guide is no page of it: those links lead to the repository.
	@sed -i -E -e 's#href="\.\./\.\./\.\./([^"]*)"#href="$(REPOSITORY)/\1"#g' \
	  -e 's#href="\.\./\.\./([^"]*)\.html#href="$(REPOSITORY)/docs/\1.md#g' docs/guide/book/*.html

results: setup ## The tables of docs/results that commands give at once, written again
	.ci/results

weight: setup ## Instructions for a packet, against what is recorded (valgrind)
	.ci/weight

behaviour: setup ## What the simulator gives, against what is recorded
	.ci/behaviour

soak: setup ## 10 000 random scenarios
	$(CARGO) run --release --quiet -p polypath-cli -- soak --count 10000

fuzz: setup ## Each fuzz target for half a minute (needs a nightly toolchain and cargo-fuzz)
	cd fuzz && for target in $$($(CARGO) +nightly fuzz list); do \
	  $(CARGO) +nightly fuzz run $$target -- -max_total_time=30 || exit 1; done

install: setup ## Build and install the command, libraries, header, manual pages and completions (PREFIX, DESTDIR)
	$(CARGO) build --release -p polypath-cli -p polypath-capi -p polypath-preload
	$(MAKE) --no-print-directory install-built BUILT=$(TARGET)/release

install-built:
	install -D -m 755 $(BUILT)/polypath $(DESTDIR)$(PREFIX)/bin/polypath
	@# Programs ask for the name with the number of the interface; linkers look for the one without.
	install -D -m 755 $(BUILT)/libpolypath.so $(DESTDIR)$(LIBDIR)/libpolypath.so.$(VERSION)
	ln -sf libpolypath.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libpolypath.so.0
	ln -sf libpolypath.so.0 $(DESTDIR)$(LIBDIR)/libpolypath.so
	install -D -m 644 $(BUILT)/libpolypath.a $(DESTDIR)$(LIBDIR)/libpolypath.a
	install -D -m 755 $(BUILT)/libpolypath_preload.so $(DESTDIR)$(LIBDIR)/libpolypath_preload.so
	install -D -m 644 crates/io/capi/include/polypath.h $(DESTDIR)$(PREFIX)/include/polypath.h
	install -d $(DESTDIR)$(PKGCONFIGDIR) $(DESTDIR)$(PREFIX)/share/man/man1
	@# Below the prefix if it is there, so that --define-prefix moves it, too.
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|' -e 's|@RPATH@|$(RPATH)|' crates/io/capi/polypath.pc.in \
	  > $(DESTDIR)$(PKGCONFIGDIR)/polypath.pc
	$(BUILT)/polypath man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(BASHDIR) $(DESTDIR)$(ZSHDIR) $(DESTDIR)$(FISHDIR)
	$(BUILT)/polypath completions bash > $(DESTDIR)$(BASHDIR)/polypath
	$(BUILT)/polypath completions zsh > $(DESTDIR)$(ZSHDIR)/_polypath
	$(BUILT)/polypath completions fish > $(DESTDIR)$(FISHDIR)/polypath.fish

uninstall: ## Remove what `make install` has put there (the same PREFIX, DESTDIR)
	rm -f $(DESTDIR)$(PREFIX)/bin/polypath $(DESTDIR)$(PREFIX)/include/polypath.h
	rm -f $(DESTDIR)$(LIBDIR)/libpolypath.so* $(DESTDIR)$(LIBDIR)/libpolypath.a $(DESTDIR)$(LIBDIR)/libpolypath_preload.so
	rm -f $(DESTDIR)$(PKGCONFIGDIR)/polypath.pc
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/polypath.1 $(DESTDIR)$(PREFIX)/share/man/man1/polypath-*.1
	rm -f $(DESTDIR)$(BASHDIR)/polypath $(DESTDIR)$(ZSHDIR)/_polypath $(DESTDIR)$(FISHDIR)/polypath.fish

deb: setup ## The Debian package, in dist/ (PROFILE=release-fast: quick to build)
	$(CARGO) build --profile $(PROFILE) -p polypath-cli -p polypath-capi -p polypath-preload
	packaging/deb $(TARGET)/$(PROFILE) dist

static: setup ## The command without any library that it needs, in dist/
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --profile $(PROFILE) --target $(STATIC_TARGET) -p polypath-cli
	install -D -m 755 $(TARGET)/$(STATIC_TARGET)/$(PROFILE)/polypath dist/polypath-$(VERSION)-$(STATIC_TARGET)
	strip dist/polypath-$(VERSION)-$(STATIC_TARGET)

dist: deb static ## All that is given to others, in dist/: source, package, static command, checksums
	git archive --format=tar.gz --prefix=polypath-$(VERSION)/ -o dist/polypath-$(VERSION).tar.gz HEAD
	cd dist && sha256sum polypath-$(VERSION).tar.gz polypath_$(VERSION)-*.deb polypath-$(VERSION)-$(STATIC_TARGET) > SHA256SUMS

package-test: setup ## Install, upgrade and remove the Debian package in a root of its own, and look for what is left (root)
	$(CARGO) build --profile $(PROFILE) -p polypath-cli -p polypath-capi -p polypath-preload
	packaging/test $(TARGET)/$(PROFILE)

setup:
	@command -v $(CARGO) >/dev/null || { \
	  echo "polypath: cargo is missing; install Rust 1.95 or newer with rustup, then run make again" >&2; exit 1; }

# The tunnels that `polypath bench tunnel` compares ours with, from where their authors publish them.
WIREGUARD_GO := golang.zx2c4.com/wireguard@v0.0.0-20260522210424-ecfc5a8d5446
BORINGTUN_VERSION := 0.7.1

setup-tunnels: setup ## wireguard-go and boringtun for `polypath bench tunnel --peers`, in TARGET/tunnels (needs go, and the network)
	@if command -v go >/dev/null; then \
	  GOBIN=$(abspath $(TARGET))/tunnels/bin GOFLAGS=-mod=mod go install $(WIREGUARD_GO) && \
	  mv $(TARGET)/tunnels/bin/wireguard $(TARGET)/tunnels/bin/wireguard-go; \
	else \
	  echo "polypath: SKIPPING wireguard-go, which needs go (apt-get install golang-go, as root)" >&2; \
	fi
	$(CARGO) install boringtun-cli --version $(BORINGTUN_VERSION) --locked --root $(TARGET)/tunnels --target-dir $(TARGET)/tunnels/build

setup-packages:
	@missing=; for program in $(PROGRAMS); do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "polypath: installing packages for tests that need$$missing" >&2; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(APT_PACKAGES) >/dev/null; \
	  else \
	    echo "polypath: SKIPPING tests that need$$missing (apt-get install $(APT_PACKAGES), as root)" >&2; \
	  fi; \
	fi
