# The formula of Homebrew, built from source. A release fills in `url` and `sha256`:
#   sed -e 's/VERSION/0.1.0/' -e "s/CHECKSUM/$(sha256sum thalweg-0.1.0.tar.gz | cut -d' ' -f1)/" deploy/homebrew/thalweg.rb
class Thalweg < Formula
  desc "Stream processing for one machine: Flink SQL on every core"
  homepage "https://github.com/thalweg/thalweg"
  url "https://github.com/thalweg/thalweg/releases/download/vVERSION/thalweg-VERSION.tar.gz"
  sha256 "CHECKSUM"
  license "Apache-2.0"
  head "https://github.com/thalweg/thalweg.git", branch: "main"

  depends_on "pkgconf" => :build
  depends_on "rust" => :build
  depends_on "openssl@3"

  def install
    ENV["OPENSSL_DIR"] = Formula["openssl@3"].opt_prefix if OS.mac?
    system "cargo", "install", "--features", "all", *std_cargo_args(path: "crates/engine")
    generate_completions_from_executable(bin/"thalweg", "completions")
    system bin/"thalweg", "man", "man1"
    man1.install Dir["man1/*.1"]
  end

  service do
    run [opt_bin/"thalweg", "serve", "--data-dir", var/"thalweg"]
    keep_alive crashed: true
    working_dir var/"thalweg"
    log_path var/"log/thalweg.log"
    error_log_path var/"log/thalweg.log"
  end

  test do
    assert_equal "n\n42\n", shell_output("#{bin}/thalweg run --format csv -e 'SELECT 42 AS n'")
  end
end
