package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// newEtcdCommand runs one embedded etcd member over mutual TLS. Its few flags
// have the names of etcd's own flags, so that a real etcd binary can replace
// it.
func newEtcdCommand() *cobra.Command {
	cfg := embed.NewConfig()
	// Without etcd's own flags this is zero, which would log every request.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	var client, peer, advertiseClient, advertisePeer string
	cmd := &cobra.Command{
		Use:           "etcd",
		Short:         "Run a single etcd member for the lab",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			clientURL, err := url.Parse(client)
			if err != nil {
				return fmt.Errorf("--listen-client-urls: %w", err)
			}
			peerURL, err := url.Parse(peer)
			if err != nil {
				return fmt.Errorf("--listen-peer-urls: %w", err)
			}
			if advertiseClient != client || advertisePeer != peer {
				return fmt.Errorf("a member of the lab advertises the addresses that it listens on")
			}
			cfg.ListenClientUrls = []url.URL{*clientURL}
			cfg.AdvertiseClientUrls = []url.URL{*clientURL}
			cfg.ListenPeerUrls = []url.URL{*peerURL}
			cfg.AdvertisePeerUrls = []url.URL{*peerURL}
			return runEtcd(cfg)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Name, "name", "lab", "name of the member")
	flags.StringVar(&cfg.Dir, "data-dir", "", "folder of the database")
	flags.StringVar(&client, "listen-client-urls", "https://127.0.0.1:2379", "address for clients")
	flags.StringVar(&peer, "listen-peer-urls", "http://127.0.0.1:2380", "address for peers")
	// etcd's own binary needs these three where the addresses are not its
	// defaults.
	flags.StringVar(&advertiseClient, "advertise-client-urls", "https://127.0.0.1:2379", "must repeat --listen-client-urls")
	flags.StringVar(&advertisePeer, "initial-advertise-peer-urls", "http://127.0.0.1:2380", "must repeat --listen-peer-urls")
	flags.StringVar(&cfg.InitialCluster, "initial-cluster", "lab=http://127.0.0.1:2380", "NAME=PEER-URL of this member")
	flags.StringVar(&cfg.ClientTLSInfo.CertFile, "cert-file", "", "server certificate")
	flags.StringVar(&cfg.ClientTLSInfo.KeyFile, "key-file", "", "key of the server certificate")
	flags.StringVar(&cfg.ClientTLSInfo.TrustedCAFile, "trusted-ca-file", "", "authority that signs client certificates")
	flags.BoolVar(&cfg.ClientTLSInfo.ClientCertAuth, "client-cert-auth", false, "require a client certificate")
	flags.BoolVar(&cfg.UnsafeNoFsync, "unsafe-no-fsync", false, "do not wait for the disk: only for data that may be lost")
	flags.Int64Var(&cfg.QuotaBackendBytes, "quota-backend-bytes", 8<<30, "size at which writes are refused, in bytes")
	flags.StringVar(&cfg.LogLevel, "log-level", "warn", "debug, info, warn, error")
	_ = cmd.MarkFlagRequired("data-dir")
	return cmd
}

func runEtcd(cfg *embed.Config) error {
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-server.Server.ReadyNotify():
	case <-stop:
		return nil
	case <-time.After(60 * time.Second):
		return fmt.Errorf("etcd was not ready after 60 s: see the log above")
	}
	select {
	case <-stop:
		return nil
	case err := <-server.Err():
		return fmt.Errorf("etcd stopped: %w", err)
	}
}
